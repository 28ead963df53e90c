"""checkpoint diff, average, reshard, pack, unpack: what they say, what they write, and what they refuse."""
import json
import os
import pty
import shutil
import unittest

import torch

from export_test import checkpoint_tensors
from program import ProgramTest

DIFFERS, USER, CHECKPOINT = 1, 2, 4


class Offline(ProgramTest):
    def train(self, run, ranks, steps, *overrides, config="tiny.toml"):
        self.succeed("train", config, "--ranks", ranks, f"--train.steps={steps}", f"--output.folder={run}", *overrides)
        return self.folder / run / "checkpoints" / f"step-{steps:06d}"

    def diff(self, a, b, *options, code=0):
        result = self.run_program("checkpoint", "diff", a, b, *options)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout

    def diff_json(self, a, b, *options, code=0):
        return json.loads(self.diff(a, b, "--json", *options, code=code))

    def files(self, folder):
        return sorted(path.name for path in folder.iterdir() if path.suffix == ".safetensors")

    # diff

    def test_diff_says_which_tensors_differ_where_and_by_how_much(self):
        first = self.train("run", 2, 5, "--parallel.zero=1")
        second = self.train("run", 2, 10, "--parallel.zero=1")
        self.assertIn("every bit is the same", self.diff(first, first))

        report = self.diff_json(first, second, code=DIFFERS)
        before, after = checkpoint_tensors(first), checkpoint_tensors(second)
        self.assertFalse(report["same"])
        self.assertEqual(report["compared"], len(before))
        self.assertEqual((report["a"]["step"], report["b"]["step"], report["a"]["ranks"]), (5, 10, 2))
        state = {change["key"]: (change["before"], change["after"]) for change in report["state"]}
        self.assertEqual(state["step"], ("5", "10"))
        self.assertEqual(state["next_sample"], ("80", "160"))
        self.assertEqual(state["config.train.steps"], ("5", "10"))
        differing = {tensor["name"]: tensor for tensor in report["tensors"]}
        self.assertEqual(set(differing), {name for name in before if not torch.equal(before[name], after[name])})
        for name, tensor in differing.items():
            a, b = before[name], after[name]
            unequal = (a != b).nonzero()
            self.assertEqual(tensor["different"], len(unequal), name)
            self.assertEqual(tensor["first"]["index"], unequal[0].tolist(), name)
            place = tuple(unequal[0].tolist())
            self.assertEqual(torch.tensor(float(tensor["first"]["a"])), a[place], name)
            self.assertEqual(torch.tensor(float(tensor["first"]["b"])), b[place], name)
            distance = (a.double() - b.double()).abs().max().item()
            self.assertEqual(tensor["max_absolute"], distance, name)
            largest = max(a.abs().max().item(), b.abs().max().item())
            self.assertAlmostEqual(tensor["max_relative"], distance / largest, delta=1e-12)
            self.assertAlmostEqual(tensor["cosine"], torch.cosine_similarity(a.flatten().double(), b.flatten().double(),
                                                                           dim=0, eps=1e-300).item(), delta=1e-9)
        text = self.diff(first, second, code=DIFFERS)
        self.assertRegex(text, r"state    config.train.steps: 5 -> 10\n")
        self.assertRegex(text, r"differs  lm_head.weight F32 \d+ x 32: \d+ of \d+ elements, max \|a-b\| [\d.e-]+, "
                               r"relative [\d.e-]+, \d+ ULP, cosine 0.9\d+\n         first at \[\d+, \d+\]: \S+ in A")

    def test_diff_takes_names_and_a_tolerance(self):
        one = self.train("one", 1, 5)
        two = self.train("two", 2, 5, "--parallel.tensor=2")
        self.assertFalse(self.diff_json(one, two, code=DIFFERS)["same"])
        close = self.diff_json(one, two, "--tensors", "model.*,lm_head.*", "--tolerance", "1e-4")
        self.assertTrue(close["same"])
        self.assertTrue(all(name["name"].startswith(("model.", "lm_head.")) for name in close["tensors"]))
        self.assertGreater(len(close["tensors"]), 0)
        self.assertIn("within the tolerance", self.diff(one, two, "--tensors", "lm_head.*", "--tolerance", "1e-4"))
        self.diff(one, two, "--tensors", "lm_head.*", "--tolerance", "1e-12", code=DIFFERS)

    def test_diff_lists_names_and_forms_of_other_models(self):
        self.train("one", 1, 2)
        self.train("other", 1, 2, "--model.layers=1", "--model.ffn_width=32")
        report = self.diff_json("one", "other", code=DIFFERS)
        self.assertIn("model.layers.1.mlp.up_proj.weight", report["only_in_a"])
        self.assertEqual(report["only_in_b"], [])
        forms = {tensor["name"]: tensor for tensor in report["tensors"]}
        up = forms["model.layers.0.mlp.up_proj.weight"]
        self.assertEqual((up["shape_a"], up["shape_b"]), ([64, 32], [32, 32]))
        self.assertIn("only A   model.layers.1.mlp.up_proj.weight\n", self.diff("one", "other", code=DIFFERS))

    def test_diff_reads_what_other_programs_wrote(self):
        run = self.train("run", 2, 2, "--parallel.zero=1")
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        tensors = checkpoint_tensors(run)
        report = self.diff_json(run, "exported", "--tensors", "model.*,lm_head.*")
        self.assertTrue(report["same"])
        self.assertEqual(report["compared"], sum(name.startswith(("model.", "lm_head.")) for name in tensors))
        self.assertEqual(report["state"], [])
        self.assertNotIn("step", report["b"])
        whole = self.diff_json("exported/model.safetensors", run, code=DIFFERS)
        self.assertEqual(whole["only_in_b"], sorted(name for name in tensors if name.startswith("optimizer.")))
        self.assertRegex(self.diff("exported", "exported"), r"\AA        exported: a \w[^\n]*\nB [^\n]*\n[^\n]*every bit is the same\n\Z")

    def test_a_terminal_shows_progress(self):
        first = self.train("run", 1, 5)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(self.program, [self.program, "checkpoint", "diff", str(first), str(first)], self.environment)
        output = b""
        try:
            while part := os.read(terminal, 65536):
                output += part
        except OSError:  # the other end is closed
            pass
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertIn(b"compare [########################################] 100%", output)

    # average

    def test_average_is_the_mean_of_the_weights_and_a_run(self):
        options = ["--train.precision=bf16", "--average.decay=0.9"]
        for steps in (5, 10, 15):
            self.train("run", 2, steps, "--parallel.zero=1", *options)
        paths = sorted((self.folder / "run" / "checkpoints").iterdir())
        self.assertEqual(len(paths), 3)
        for name, decay, weights in (("equal", [], [1, 1, 1]), ("last", ["--decay", "0.5"], [.25, .5, 1])):
            report = json.loads(self.succeed("checkpoint", "average", *paths, "--output", name, "--json", *decay))
            self.assertEqual(report["step"], 15)
            for checkpoint, weight in zip(report["checkpoints"], weights, strict=True):
                self.assertAlmostEqual(checkpoint["weight"], weight / sum(weights))
            sources = [checkpoint_tensors(path) for path in paths]
            actual = checkpoint_tensors(self.folder / name / "checkpoints" / "step-000015")
            self.assertEqual(set(actual), set(sources[-1]))
            for tensor, values in actual.items():
                master = f"optimizer.master.{tensor}"
                expected = sources[-1][tensor]
                if not tensor.startswith(("optimizer.", "callback.")) or tensor.startswith("optimizer.master."):
                    read = master if master in actual else tensor
                    total = sum(w * source[read].double() for w, source in zip(weights, sources, strict=True))
                    expected = (total / sum(weights)).to(values.dtype)
                self.assertEqual(values.dtype, expected.dtype)
                self.assertTrue(torch.equal(values, expected), tensor)
        text = self.succeed("generate", "--checkpoint", "equal", "--prompt", "def ", "--tokens", 5)
        self.assertTrue(text.startswith("def "))
        self.succeed("checkpoint", "export", "equal", "--output", "exported", "--dtype", "fp32")
        self.succeed("checkpoint", "verify", "equal")
        self.succeed("train", "equal/config.toml", "--ranks", 1, "--train.steps=17")
        self.assertEqual([step for step, _, _ in self.curve("equal")], [16, 17])
        self.assertEqual(self.checkpoints("run"), ["step-000005", "step-000010", "step-000015"])

    # reshard

    def test_a_resharded_run_goes_on_with_the_same_bits(self):
        source = self.train("run", 2, 5, "--parallel.zero=1")
        text = self.succeed("checkpoint", "reshard", "run", "--output", "three", "--ranks", 3)
        self.assertRegex(text, r"read   run/checkpoints/step-000005: step 5, saved by 2 ranks\nwrote  three: \d+ tensors")
        report = json.loads(self.succeed("checkpoint", "reshard", source, "--output", "one", "--ranks", 1, "--json"))
        self.assertEqual((report["ranks_before"], report["ranks"], report["step"]), (2, 1, 5))
        for run, ranks in (("three", 3), ("one", 1)):
            written = self.folder / run / "checkpoints" / "step-000005"
            self.assertEqual(len(self.files(written)), ranks)
            self.succeed("checkpoint", "verify", run)
            same = self.diff_json("run", run)
            self.assertTrue(same["same"])
            self.assertEqual(same["state"], [])
            self.assertEqual(same["tensors"], [])
        self.train("run", 2, 8, "--parallel.zero=1")
        for run in ("three", "one"):
            self.succeed("train", f"{run}/config.toml", "--ranks", 2, "--train.steps=8", "--parallel.zero=1")
            self.assertEqual(self.curve(run), self.curve()[5:])
        self.assertTrue(self.succeed("generate", "--checkpoint", "one", "--prompt", "def ", "--tokens", 3))

    # pack, unpack

    def inodes(self, folder):
        return {path.stat().st_ino for path in (self.folder / folder).rglob("*") if path.is_file()}

    def own_bytes(self, folder, others):
        """Of the files that no other folder has."""
        taken = set().union(*map(self.inodes, others))
        return sum(path.stat().st_size for path in folder.iterdir() if path.stat().st_ino not in taken)

    def test_a_packed_checkpoint_moves_and_goes_on_with_the_same_bits(self):
        self.train("run", 2, 5, "--parallel.zero=1")
        source = self.train("run", 2, 8, "--parallel.zero=1")
        for compression in ("none", "zstd"):
            with self.subTest(compression=compression):
                text = self.succeed("checkpoint", "pack", "run", "--output", "packed", "--compression", compression)
                self.assertRegex(text, r"read   run/checkpoints/step-000008: step 8, saved by 2 ranks\n"
                                       r"wrote  packed: \d+ tensors, .* in files of .*")
                self.assertEqual(self.checkpoints("packed"), ["step-000008"])
                self.assertFalse(self.inodes("packed") & self.inodes("run"))
                self.assertTrue(all(path.stat().st_nlink == 1 and not path.is_symlink()
                                    for path in (self.folder / "packed").rglob("*") if path.is_file()))
                self.assertTrue(self.succeed("generate", "--checkpoint", "packed", "--prompt", "def ", "--tokens", 3))
                # By tar, to a place of which the run knows nothing.
                archive = shutil.make_archive(str(self.folder / "moved"), "tar", self.folder, "packed")
                shutil.rmtree(self.folder / "packed")
                (self.folder / "elsewhere").mkdir()
                shutil.unpack_archive(archive, self.folder / "elsewhere")
                self.succeed("checkpoint", "verify", "elsewhere/packed")
                self.succeed("checkpoint", "unpack", "elsewhere/packed", "--output", "copy")
                shutil.rmtree(self.folder / "elsewhere")
                same = self.diff_json(source, "copy")
                self.assertTrue(same["same"])
                self.assertEqual((same["state"], same["tensors"]), ([], []))
                self.succeed("train", "copy/config.toml", "--ranks", 2, "--train.steps=11", "--parallel.zero=1")
                self.assertEqual([step for step, _, _ in self.curve("copy")], [9, 10, 11])
                shutil.move(self.folder / "copy", self.folder / compression)
        self.train("run", 2, 11, "--parallel.zero=1")
        for copy in ("none", "zstd"):
            self.assertEqual(self.curve(copy), self.curve()[8:])

    def test_unpacking_into_a_run_writes_only_what_it_lacks(self):
        options = ["--parallel.zero=1", "--model.width=128", "--model.ffn_width=256", "--optimizer.schedule=constant"]
        self.train("run", 2, 5, *options)
        source = self.train("run", 2, 6, *options)
        self.succeed("checkpoint", "pack", "run/checkpoints/step-000005", "--output", "five", "--compression", "zstd")
        self.succeed("checkpoint", "pack", "run", "--output", "six", "--compression", "zstd")
        kept = self.folder / "kept"
        shutil.copytree(source, kept)

        report = json.loads(self.succeed("checkpoint", "unpack", "six", "--output", "run", "--replace", "--json"))
        self.assertGreater(report["bytes"], 2 << 20)
        self.assertGreater(report["bytes_shared"], 0.95 * report["bytes"])
        self.assertLess(report["bytes_written"], 0.05 * report["bytes"])
        self.assertTrue(self.diff_json(kept, "run")["same"])

        shutil.rmtree(self.folder / "run" / "checkpoints" / "step-000005")
        text = self.succeed("checkpoint", "unpack", "five", "--output", "run")
        self.assertRegex(text, r"wrote  run: \d+ tensors, .* written, .* shared with its newest checkpoint")
        self.assertEqual(self.checkpoints("run"), ["step-000005", "step-000006"])
        self.succeed("checkpoint", "verify", "run/checkpoints/step-000005")
        self.assertTrue(self.diff_json("five", "run/checkpoints/step-000005")["same"])
        # In a run of later epochs it is of the newest one, or a start would prefer that one's checkpoints.
        root = self.folder / "run" / "checkpoints"
        (root / "step-000006").rename(root / "step-000006-epoch-2")
        self.succeed("checkpoint", "unpack", "five", "--output", "run")
        self.assertEqual(self.checkpoints("run"), ["step-000005", "step-000005-epoch-2", "step-000006-epoch-2"])
        # A run that is trained is left alone.
        process = self.start_and_await_step("train", "tiny.toml", "--train.steps=100000", "--output.folder=live")
        self.fail_with(USER, ["live"], "checkpoint", "unpack", "five", "--output", "live")
        process.terminate()
        self.assertEqual(process.wait(), 0)

    # what is refused

    def test_wrong_input_is_refused_in_one_line_and_leaves_nothing(self):
        first, second = self.train("run", 1, 2), self.train("run", 1, 4)
        self.train("other", 1, 2, "--model.width=64")
        (self.folder / "full").mkdir()
        (self.folder / "full" / "file").write_text("x")
        (self.folder / "file").write_text("x")
        damaged = self.folder / "damaged"
        shutil.copytree(first, damaged)
        data = damaged / self.files(damaged)[0]
        content = bytearray(data.read_bytes())
        content[-1] ^= 1
        data.write_bytes(content)
        cut = self.folder / "cut"
        shutil.copytree(first, cut)
        (cut / "manifest.json").write_text((first / "manifest.json").read_text()[:-9])

        (self.folder / "run" / "config.toml").rename(self.folder / "config.toml")
        (self.folder / "no run").mkdir()
        (self.folder / "no run" / "file").write_text("x")
        shutil.copytree(self.folder / "run", self.folder / "there")
        (self.folder / "config.toml").rename(self.folder / "there" / "config.toml")

        average, reshard = ["average", "--output", "new"], ["reshard", "--output", "new"]
        pack, unpack = ["pack", "--output", "new"], ["unpack", "--output"]
        for code, words, arguments in (
                (CHECKPOINT, ["nowhere"], ["diff", first, "nowhere"]),
                (CHECKPOINT, ["no checkpoint in text"], ["diff", "text", first]),
                (CHECKPOINT, ["damaged"], ["diff", first, damaged]),
                (CHECKPOINT, ["manifest.json"], ["diff", cut, first]),
                (USER, ["B", "required"], ["diff", first]),
                (USER, ["none of the", "names matches"], ["diff", first, second, "--tensors", "*.wieght"]),
                (USER, ["--tolerance", "-1", "at least 0"], ["diff", first, second, "--tolerance", -1]),
                (USER, ["--tolerance", "nan"], ["diff", first, second, "--tolerance", "nan"]),
                (USER, ["--output", "required"], ["average", first, second]),
                (USER, ["cannot average 1", "at least 2"], [*average, first]),
                (USER, ["step-000002", "twice"], [*average, first, "run/checkpoints/step-000002/"]),
                (CHECKPOINT, ["step-000002", "not of the model of", "lm_head.weight"], [*average, "other", second]),
                (CHECKPOINT, ["damaged"], [*average, second, damaged]),
                (USER, ["--decay", "0", "above 0"], [*average, first, second, "--decay", 0]),
                (USER, ["--decay", "1.5", "at most 1"], [*average, first, second, "--decay", 1.5]),
                (USER, ["full", "not empty"], ["average", first, second, "--output", "full"]),
                (USER, ["--ranks", "required"], [*reshard, first]),
                (USER, ["--ranks", "0", "at least 1"], [*reshard, first, "--ranks", 0]),
                (USER, ["--ranks", "257", "at most 256"], [*reshard, first, "--ranks", 257]),
                (USER, ["--ranks", "two"], [*reshard, first, "--ranks", "two"]),
                (CHECKPOINT, ["damaged"], [*reshard, damaged, "--ranks", 3]),
                (CHECKPOINT, ["nowhere"], [*reshard, "nowhere", "--ranks", 2]),
                (USER, ["file", "is a file"], ["reshard", first, "--ranks", 2, "--output", "file"]),
                (USER, ["--compression", "gzip"], [*pack, first, "--compression", "gzip"]),
                (USER, ["full", "not empty"], ["pack", first, "--output", "full"]),
                (CHECKPOINT, ["damaged"], [*pack, damaged]),
                (CHECKPOINT, ["nowhere"], [*pack, "nowhere"]),
                (CHECKPOINT, ["manifest.json"], [*unpack, "new", cut]),
                (CHECKPOINT, ["damaged"], [*unpack, "there", damaged, "--replace"]),
                (USER, ["step-000002", "is there already", "--replace"], [*unpack, "there", first]),
                (USER, ["no run", "has no config.toml"], [*unpack, "no run", first]),
                (USER, ["file", "is a file"], [*unpack, "file", first]),
                (USER, ["model.width", "32 -> 64", "new folder"], [*unpack, "there", "other"])):
            with self.subTest(arguments=arguments):
                before = sorted(os.listdir(self.folder))
                self.fail_with(code, words, "checkpoint", *arguments)
                self.assertEqual(sorted(os.listdir(self.folder)), before)
                self.assertEqual(self.checkpoints("there"), ["step-000002", "step-000004"])


if __name__ == "__main__":
    unittest.main()
