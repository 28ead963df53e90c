"""Several sources with shares, and named validation sets: the same samples at every layout and after kills, what the
start says, and lines for what cannot be blended."""
import contextlib
import os
import random
import re
import shutil
import signal
import unittest

from program import CONFIG, TIMEOUT, ProgramTest, children

USER = 2
SOURCES = "code=data/code:0.7,web=data/web:0.3"
EVALUATES = ["--train.evaluate_interval=5", "--train.evaluate_sequences=12"]


class BlendTest(ProgramTest):
    def prepare(self):
        generator = random.Random(1)
        for name, words, lines in (("code", ["def", "return", "import", "self"], 200), ("web", ["a", "the", "word"], 30)):
            (self.folder / name).mkdir()
            for i in range(5):
                text = "\n".join(" ".join(generator.choices(words, k=8)) for _ in range(lines))
                (self.folder / name / f"{i}.txt").write_text(text + "\n")
            self.succeed("data", "prepare", "--input", name, "--tokenizer", "bytes", "--validation-fraction", 0.2,
                         "--output", f"data/{name}")
        config = CONFIG.replace('path = "data/tiny"', f'sources = "{SOURCES}"')
        (self.folder / "blend.toml").write_text(config.replace("steps = 20", "steps = 12"))

    def train(self, run, *options, ranks=1):
        return self.succeed(*self.command(run, *options, ranks=ranks))

    def command(self, run, *options, ranks=1):
        return ["train", "blend.toml", "--ranks", ranks, "--threads", 1, f"--output.folder={run}", *options]

    def refused(self, words, *options, run="none", ranks=1):
        return self.fail_with(USER, words, *self.command(run, *options, ranks=ranks))

    def assert_close(self, run, other, digits=10):
        one, two = self.metrics(run), self.metrics(other)
        self.assertEqual(len(one), len(two))
        for a, b in zip(one, two):
            self.assertAlmostEqual(a["loss"], b["loss"], digits)


class Blends(BlendTest):
    def test_the_start_says_what_is_read_of_each_source(self):
        output = self.train("run")
        found = re.findall(r"(?m)^data    (code|web): (\S+) %, (\d+) tokens, (\d+) samples, (\S+) passes$", output)
        self.assertEqual([each[:2] for each in found], [("code", "70"), ("web", "30")])
        read = [round(int(samples) * float(passes)) for _, _, _, samples, passes in found]
        for samples, share in zip(read, (0.7, 0.3)):
            self.assertAlmostEqual(samples, share * 12 * 16, delta=3)  # passes have two digits
        for name, _, tokens, samples, _ in found:
            size = (self.folder / f"data/{name}.bin").stat().st_size // 2
            self.assertEqual((int(tokens), int(samples)), (size, (size - 1) // 32))
        self.assertIn("def", self.succeed("generate", "--checkpoint", "run", "--prompt", "def", "--tokens", 4))

    def test_any_number_of_ranks_reads_the_same_samples(self):
        exact = ["--train.reproducible=true"]
        self.train("one", *exact)
        for ranks, options in ((2, []), (4, ["--parallel.zero=2"])):
            self.train(f"exact-{ranks}", *exact, *options, ranks=ranks)
            self.assertEqual(self.curve(f"exact-{ranks}"), self.curve("one"))
        wide = ["--train.precision=fp64", "--train.global_batch=12", "--train.micro_batch=2"]
        self.train("wide", *wide)
        for ranks, options in ((2, []), (3, []), (3, ["--parallel.zero=3"]), (2, ["--parallel.tensor=2"]),
                               (2, ["--parallel.pipeline=2"])):
            with self.subTest(ranks=ranks, options=options):
                shutil.rmtree(self.folder / "other", ignore_errors=True)
                self.train("other", *wide, *options, ranks=ranks)
                self.assert_close("other", "wide")
        self.train("shares", *wide, "--data.sources=code=data/code:0.6,web=data/web:0.4")
        self.assertNotAlmostEqual(self.metrics("shares")[-1]["loss"], self.metrics("wide")[-1]["loss"], 4)

    def test_a_killed_run_goes_on_with_the_same_bits(self):
        command = self.command("run", "--train.steps=40", ranks=2)
        process = self.start(*command)
        self.await_step(17, process)
        for pid in children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
        self.assertNotEqual(process.returncode, 0)
        output = self.succeed(*command)
        self.assertIn("resume  after step", output)
        self.assertEqual(output.count("passes"), 2)
        self.train("whole", "--train.steps=40", ranks=2)
        self.assertEqual(self.curve("run"), self.curve("whole"))

    def test_a_resume_with_another_batch_goes_on_where_it_stood(self):
        options = ["--optimizer.schedule=constant", "--train.precision=fp64"]
        self.train("parts", *options, "--train.steps=5")
        self.train("parts", *options, "--train.steps=9", "--train.global_batch=8")
        self.train("parts", *options, "--train.steps=12")
        self.train("again", *options, "--train.steps=5", ranks=2)
        self.train("again", *options, "--train.steps=9", "--train.global_batch=8")
        self.train("again", *options, "--train.steps=12", ranks=2)
        self.assert_close("parts", "again")

    def test_a_source_alone_is_the_same_run(self):
        self.train("blend", "--data.sources=only=data/code:3")
        self.train("plain", "--data.sources=", "--data.path=data/code")
        self.assertEqual(self.curve("blend"), self.curve("plain"))

    def test_a_run_that_exhausts_a_source_is_refused_or_repeats_it(self):
        once = ["--data.repeat_sources=false", "--train.steps=1000"]
        for ranks in (1, 2):
            line = self.refused(["data.repeat_sources is false", "samples of web"], *once, ranks=ranks)
        most = int(re.search(r"enough for (\d+) steps", line)[1])
        self.assertGreater(most, 3)
        self.assertFalse((self.folder / "none/metrics.jsonl").exists())
        self.train("most", *once[:1], f"--train.steps={most}")
        self.refused([f"enough for {most} steps"], *once[:1], f"--train.steps={most + 1}")
        output = self.train("more", f"--train.steps={most + 2}")
        self.assertRegex(output, r"web: 30 %, \d+ tokens, \d+ samples, 1\.\d\d passes")
        self.assertEqual([m["loss"] for m in self.metrics("more")][:1], [m["loss"] for m in self.metrics("most")][:1])

    def test_other_sources_shares_or_orders_are_another_run(self):
        self.train("run")
        for name in ("code", "web"):
            for path in (self.folder / "data").glob(f"{name}.*"):
                shutil.copy(path, self.folder / path.name.replace(name, f"copy-{name}", 1))
        more = ["--train.steps=14"]
        moved = "--data.sources=code=copy-code:70,web=copy-web:30"
        self.assertIn("(the same content)", self.train("run", *more, moved))
        for sources, word in (("code=data/code:0.6,web=data/web:0.4", "shares"), ("web=data/web:0.3,code=data/code:0.7", "order"),
                              ("code=data/web:0.7,web=data/code:0.3", "code index"), ("code=data/code:1", "tokens"),
                              ("text=data/code:0.7,web=data/web:0.3", "(order ")):
            for ranks in (1, 2):
                self.refused(["belongs to another run", "data.sources", word, "--resume.allow=data.sources"],
                             "--train.steps=16", f"--data.sources={sources}", run="run", ranks=ranks)
        self.refused(["data.path", "data.sources"], "--train.steps=16", "--data.sources=", "--data.path=data/code", run="run")
        output = self.train("run", "--train.steps=16", "--data.sources=code=data/code:0.6,web=data/web:0.4",
                            "--resume.allow=data.sources")
        self.assertIn("resume.allow lets change: data.sources", output)
        self.assertEqual(len(self.curve("run")), 16)

    def test_forms_of_samples(self):
        bert = ["--model.family=bert", "--model.kv_heads=4", "--data.masked_share=0.15", "--data.mask_token=257"]
        t5 = ["--model.family=t5", "--model.kv_heads=4", "--data.masked_share=0.15", "--data.sentinel_token=270",
              "--model.vocab_size=271", "--model.decoder_layers=2"]
        for options in (["--data.packing=whole"], ["--data.separate_documents=true"], bert, t5):
            with self.subTest(options=options):
                for run, ranks in (("one", 1), ("two", 2)):
                    shutil.rmtree(self.folder / run, ignore_errors=True)
                    self.train(run, *options, "--train.reproducible=true", "--train.steps=6", *EVALUATES, ranks=ranks)
                self.assertEqual(self.curve("two"), self.curve("one"))
                self.assertIn("validation_loss.web", self.metrics("one")[-1])

    def test_distillation(self):
        self.train("teacher", "--train.steps=5")
        distill = ["--objective.name=distill", "--objective.teacher=teacher", "--train.steps=6", "--train.precision=fp64"]
        self.train("one", *distill, *EVALUATES)
        self.train("two", *distill, *EVALUATES, ranks=2)
        self.assert_close("one", "two")
        self.assertIn("validation_divergence", self.metrics("one")[-1])
        self.succeed("data", "outputs", "blend.toml", *distill[:2], "--train.precision=fp64", "--top-k=257",
                     "--output=outputs")
        outputs = ["--objective.name=distill", "--objective.teacher=outputs", *distill[2:]]
        self.train("read", *outputs)
        self.assert_close("read", "one", digits=7)
        self.train("other", *outputs, "--data.sources=code=data/code:1,web=data/web:1")
        self.refused(["of other data than the run: order differ"], *outputs,
                     "--data.sources=web=data/web:0.3,code=data/code:0.7")
        self.refused(["a file of outputs", "train.evaluate_interval to 0"], *outputs, *EVALUATES)

    def test_refusals(self):
        for words, options in (
                (["data.path is \"data/code\" and data.sources", "set one of them"], ["--data.path=data/code"]),
                (["data.path is empty, and so is data.sources"], ["--data.sources=", "--data.path="]),
                (["data.sources has \"data/code\", without a name"], ["--data.sources=data/code"]),
                (["code the weight \"0\"", "a number above 0"], ["--data.sources=code=data/code:0"]),
                (["code the weight \"nan\""], ["--data.sources=code=data/code:nan"]),
                (["the name code twice"], ["--data.sources=code=data/code:1,code=data/web:1"]),
                (["65 entries", "expected 1 to 64"],
                 ["--data.sources=" + ",".join(f"s{i}=data/code:1" for i in range(65))]),
                (["data.sources has b=data/none, and there is no data/none.bin"], ["--data.sources=a=data/web:1,b=data/none:1"]),
                (["data.last_batch is \"keep\"", "\"fill\""], ["--data.last_batch=keep"]),
                (["data.repeat_sources is false and data.sources empty"],
                 ["--data.sources=", "--data.path=data/code", "--data.repeat_sources=false"]),
                (["data.sources is set and objective.name \"dpo\""], ["--objective.name=dpo"]),
                (["data.sources is set and objective.name \"classify\""],
                 ["--objective.name=classify", "--model.family=bert", "--model.kv_heads=4"])):
            with self.subTest(options=options):
                self.refused(words, *options)
        self.assertFalse((self.folder / "none").exists())

    def test_other_tokenizers_are_refused(self):
        self.succeed("data", "prepare", "--input", "web", "--tokenizer", "bpe", "--vocab-size", 280, "--output", "data/bpe")
        for ranks in (1, 2):
            self.refused(["data.sources has code=data/code and data.sources has bpe=data/bpe", "bytes with 257 tokens and bpe"],
                         "--data.sources=code=data/code:1,bpe=data/bpe:1", ranks=ranks)
        self.refused(["data.validation_sets has bpe=data/bpe", "tokenizers differ"], *EVALUATES, "--data.validation_sets=bpe=data/bpe")


class ValidationSets(BlendTest):
    def test_each_source_has_a_loss(self):
        output = self.train("run", *EVALUATES, "--checkpoint.best=validation_loss.web")
        lines = [line for line in self.metrics("run") if "validation_loss" in line]
        self.assertEqual([line["step"] for line in lines], [5, 10, 12])
        for line in lines:  # twelve sequences each
            mean = (line["validation_loss.code"] + line["validation_loss.web"]) / 2
            self.assertAlmostEqual(line["validation_loss"], mean, 6)
            self.assertNotAlmostEqual(line["validation_loss.code"], line["validation_loss.web"], 3)
            shown = (f"validation {line['validation_loss']:.4f}, loss.code {line['validation_loss.code']:.4f}, "
                     f"loss.web {line['validation_loss.web']:.4f}")
            self.assertIn(shown, output)
        events = b"".join(path.read_bytes() for path in (self.folder / "run/tensorboard").iterdir())
        for name in (b"validation_loss.code", b"validation_loss.web"):
            self.assertIn(name, events)
        self.assertTrue(any((self.folder / "run/best").iterdir()))
        for ranks in (2, 3):
            self.train(f"on-{ranks}", *EVALUATES, ranks=ranks, *["--train.uneven_batches=true"] * (ranks == 3))
            for name in ("", ".code", ".web"):
                self.assertAlmostEqual(self.metrics(f"on-{ranks}")[-1]["validation_loss" + name],
                                       lines[-1]["validation_loss" + name], 4)

    def test_named_sets_beside_one_path(self):
        plain = ["--data.sources=", "--data.path=data/code", *EVALUATES]
        self.train("plain", *plain)
        self.train("named", *plain, "--data.validation_sets=own=data/code.validation,web=data/web")
        for one, other in zip(self.metrics("plain"), self.metrics("named")):
            self.assertEqual(one["loss"], other["loss"])
            self.assertEqual(one.get("validation_loss"), other.get("validation_loss.own"))
        self.train("single", *plain, "--data.validation_sets=own=data/code.validation")
        last = self.metrics("single")[-1]
        self.assertEqual(last["validation_loss"], last["validation_loss.own"])
        # Other sets on a resume, and one with other content.
        more = ["--train.steps=15", *plain]
        self.assertIn("data.validation_sets", self.train("single", *more, "--data.validation_sets=own=data/code.validation,all=data/web"))
        self.assertIn("validation_loss.all", self.metrics("single")[-1])
        self.refused(["validation: own index"], "--train.steps=18", *plain, "--data.validation_sets=own=data/web", run="single")

    def test_refusals(self):
        (self.folder / "data/web.validation.bin").unlink()
        self.refused(["web of data.sources has no data/web.validation.bin", "data.validation_sets"], *EVALUATES)
        self.train("run", *EVALUATES, "--data.validation_sets=code=data/code.validation")
        for words, options in (
                (["data.validation_sets has \"data/code\", without a name"], ["--data.validation_sets=data/code"]),
                (["the name \"a b\""], ["--data.validation_sets=a b=data/code"]),
                (["data.validation_sets has a=data/none, and there is no data/none.bin"],
                 [*EVALUATES, "--data.validation_sets=a=data/none"]),
                (["checkpoint.best", "validation_loss.wbe", "did you mean"],
                 [*EVALUATES, "--checkpoint.best=validation_loss.wbe", "--data.validation_sets=web=data/web"])):
            with self.subTest(options=options):
                self.refused(words, *options)


if __name__ == "__main__":
    unittest.main(verbosity=2)
