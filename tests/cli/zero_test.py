"""ZeRO, recompute, buckets and precision change no bit: losses, norms and final weights as printed and saved."""
import json
import pathlib
import unittest

from program import ProgramTest, piece_bytes

STEPS = 20
ALL_BITS = 1 << 30
WIDE = ("--model.width=64", "--model.ffn_width=128")  # rows of whole blocks of int8 states


class ZeroTest(ProgramTest):
    def train(self, run, ranks, *overrides, batch=24):
        self.succeed("train", "tiny.toml", "--ranks", ranks, "--threads", 1, f"--train.steps={STEPS}",
                     f"--train.global_batch={batch}", "--train.micro_batch=2", "--checkpoint.interval=0",
                     f"--output.folder={run}", *overrides)
        curve = self.curve(run)
        self.assertEqual([step for step, _, _ in curve], list(range(1, STEPS + 1)))
        return curve, self.tensors(run)

    def tensors(self, run, step=STEPS):
        """Name -> bytes of the whole tensor, weights and optimizer state."""
        folder = self.folder / run / "checkpoints" / f"step-{step:06d}"
        manifest = json.loads((folder / "manifest.json").read_text())
        tensors = {}
        for name, record in manifest["tensors"].items():
            # Parts are runs of rows: in order of their offsets they make up the whole.
            pieces = sorted(record["pieces"], key=lambda piece: piece["offset"])
            tensors[name] = b"".join(piece_bytes(folder, manifest, piece) for piece in pieces)
        return tensors

    def assert_same(self, actual, expected, what):
        self.assertEqual(actual[0], expected[0], what)
        self.assertEqual(actual[1].keys(), expected[1].keys(), what)
        for name, data in expected[1].items():
            self.assertTrue(actual[1][name] == data, f"{what}: {name} differs")

    def compare(self, ranks, variants, *options, batch=24, order="rank-first"):
        common = (f"--parallel.gradient_order={order}", *options)
        expected = self.train("expected", ranks, *common, batch=batch)
        self.assertLess(float(expected[0][-1][1]), float(expected[0][0][1]) - 0.3, "it learns")
        for i, variant in enumerate(variants):
            with self.subTest(ranks=ranks, variant=variant):
                self.assert_same(self.train(f"variant-{i}", ranks, *common, *variant, batch=batch), expected,
                                 f"{ranks} ranks, {variant}")


class StateDtype(ZeroTest):
    """optimizer.state_dtype: same bits at every stage, what it refuses, and what a checkpoint becomes under another."""

    def test_every_stage_and_a_disk_have_the_same_bits(self):
        disk = ("--parallel.zero=3", "--offload.optimizer=disk", "--offload.buffer_bytes=65536")
        for ranks, dtype, *options in ((2, "int8"), (3, "bf16"), (2, "bf16", "--optimizer.name=muon")):
            self.setUp()
            self.compare(ranks, [*((f"--parallel.zero={zero}",) for zero in (1, 2, 3)), disk], *WIDE,
                         f"--optimizer.state_dtype={dtype}", *options)

    def test_blocks_that_are_cut_are_refused(self):
        # The tensor axis cuts the rows of o_proj, which have 64 elements.
        self.fail_with(2, ["optimizer.state_dtype", "o_proj", "cut at element 32", "choose bf16"], "train", "tiny.toml",
                       "--ranks", 2, "--parallel.tensor=2", *WIDE, "--optimizer.state_dtype=int8")
        self.assertEqual(list(self.folder.glob("run/checkpoints/step-*")), [])

    def test_rows_that_are_cut_round_alike(self):
        # bf16 weights and states round stochastically. One rank and two differ by the order of sums alone.
        options = (*WIDE, "--optimizer.state_dtype=bf16", "--train.precision=bf16", "--train.master_weights=false",
                   "--train.stochastic_rounding=true")
        one, two = (self.train(name, ranks, *options, *axes)[0]
                    for name, ranks, axes in (("one", 1, ()), ("two", 2, ("--parallel.tensor=2",))))
        for (step, loss, _), (_, other, _) in zip(one, two):
            self.assertLess(abs(float(loss) - float(other)), 0.1, step)
        self.assertLess(float(two[-1][1]), float(two[0][1]) - 0.3, "it learns")

    def test_servers_refuse(self):
        self.fail_with(2, ["parallel.servers", "optimizer.state_dtype", "fp32"], "train", "tiny.toml", "--ranks", 3,
                       "--parallel.servers=1", "--train.gradient_clip=0", "--optimizer.state_dtype=bf16")

    def test_a_resume_converts_when_it_is_allowed(self):
        run = ("train", "tiny.toml", "--threads", 1, *WIDE)
        self.succeed(*run, "--ranks", 2, "--parallel.zero=3", "--train.steps=5")
        for step, dtype in ((10, "int8"), (15, "bf16"), (20, "fp32")):
            options = (*run, "--ranks", 1, f"--train.steps={step}", f"--optimizer.state_dtype={dtype}")
            self.fail_with(2, ["optimizer.state_dtype", f"-> '{dtype}'", "--resume.allow=optimizer.state_dtype"], *options)
            output = self.succeed(*options, "--resume.allow=optimizer.state_dtype")
            self.assertIn("resume.allow lets change: optimizer.state_dtype", output)
            manifest = json.loads((self.folder / f"run/checkpoints/step-{step:06d}/manifest.json").read_text())
            saved = manifest["tensors"]["optimizer.exp_avg.lm_head.weight"]["dtype"]
            self.assertEqual(saved, {"int8": "U8", "bf16": "BF16", "fp32": "F32"}[dtype])
            self.assertEqual("optimizer.exp_avg_scale.lm_head.weight" in manifest["tensors"], dtype == "int8")
        losses = [float(loss) for _, loss, _ in self.curve()]
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], losses[0] - 0.3, "it learns")


class Zero(ZeroTest):
    def test_every_stage_on_one_to_four_ranks(self):
        for ranks in (1, 2, 3, 4):
            self.setUp()
            order = ("microbatch-first", "rank-first")[ranks % 2]
            self.compare(ranks, [(f"--parallel.zero={zero}",) for zero in (1, 2, 3)], order=order)

    def test_reproducible_on_one_two_and_four_ranks(self):
        option = "--train.reproducible=true"
        expected = self.train("one", 1, option, batch=16)
        for ranks in (1, 2, 4):
            for zero in (0, 1, 2, 3):
                run = f"{ranks}-{zero}"  # stages 2 and 3 sum over ranks first
                self.assert_same(self.train(run, ranks, option, f"--parallel.zero={zero}", batch=16), expected, run)
        hybrid = self.train("hybrid", 4, option, "--parallel.zero=3", "--parallel.shard=2", batch=16)
        self.assert_same(hybrid, expected, "hybrid")
        self.assertNotEqual(self.train("in-rank-order", 4, batch=16)[0], expected[0], "nothing to show")

    def test_resumed_at_another_stage(self):
        common = ("train", "tiny.toml", "--ranks", 2, "--threads", 1, "--train.micro_batch=2",
                  "--train.precision=bf16", "--optimizer.schedule=constant")
        orders = ("microbatch-first", "rank-first")
        for order in orders:
            self.succeed(*common, "--train.steps=20", f"--output.folder={order}", f"--parallel.gradient_order={order}")
        self.assertFalse(self.tensors(orders[0]) == self.tensors(orders[1]), "nothing to show")
        # A new run has its stage's order, and keeps it at another stage.
        for first, second, order in ((3, 0, orders[1]), (0, 3, orders[0]), (1, 2, orders[0])):
            run = f"{first}-{second}"
            self.succeed(*common, "--train.steps=10", f"--output.folder={run}", f"--parallel.zero={first}")
            self.succeed(*common, "--train.steps=20", f"--output.folder={run}", f"--parallel.zero={second}")
            self.assertEqual(self.curve(run), self.curve(order))
            self.assertTrue(self.tensors(run) == self.tensors(order))
            # A new run that begins with its config chooses again; its checkpoints name the order.
            self.assertIn("gradient_order = 'auto'", (self.folder / run / "config.toml").read_text())
            manifest = self.folder / run / "checkpoints" / f"step-{STEPS:06d}" / "manifest.json"
            self.assertIn(f"gradient_order = '{order}'", manifest.read_text())


class ZeroOptions(ZeroTest):
    """Each option at each stage (`make test-all`); parity_test has some of them together."""

    def test_buckets_and_overlap(self):
        self.compare(2, [(f"--parallel.zero={zero}", option) for zero in (0, 2, 3) for option in (
            "--train.bucket_bytes=1024", "--train.bucket_bytes=1048576", f"--train.bucket_bytes={ALL_BITS}",
            "--train.overlap=false", "--train.symmetric_memory=false")])

    def test_recompute(self):
        modules = "--train.recompute_modules=attention,feed_forward"
        for family in (("--model.family=llama",), ("--model.family=gpt2", "--model.kv_heads=4")):
            self.setUp()
            self.compare(2, [(f"--parallel.zero={zero}", *option) for zero in (0, 3) for option in (
                ("--train.recompute=selective",), ("--train.recompute=selective", modules),
                ("--train.recompute=full",))], *family)

    def test_precision(self):
        for option in (("--train.precision=bf16",), ("--train.precision=fp16",), ("--train.fp32_products=bf16",),
                       ("--train.fp32_products=bf16x3",),
                       ("--train.precision=bf16", "--train.reduce_dtype=fp32"),
                       ("--train.precision=bf16", "--train.master_weights=false",
                        "--train.stochastic_rounding=true")):
            self.setUp()
            self.compare(3, [(f"--parallel.zero={zero}",) for zero in (1, 2, 3)], *option)

    def test_products_of_rounded_factors(self):
        train = ("train", "tiny.toml", "--ranks=2", "--train.steps=5", "--checkpoint.interval=0")
        self.succeed(*train, "--output.folder=exact")
        has_unit = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
        # Logits of about 1 are sums of numbers that are each rounded by up to so much.
        for products, bound in (("bf16", 2**-8), ("bf16x3", 2**-16)):
            self.succeed(*train, f"--output.folder={products}", f"--train.fp32_products={products}")
            for (_, exact, _), (_, rounded, _) in zip(self.curve("exact"), self.curve(products), strict=True):
                self.assertEqual(float(exact) != float(rounded), has_unit)
                self.assertLess(abs(float(exact) - float(rounded)), bound)
        without = self.succeed(*train, "--output.folder=without", "--train.fp32_products=bf16x3",
                               environment={"ONEDNN_MAX_CPU_ISA": "AVX2"})
        self.assertIn("train.fp32_products changes nothing", without)
        self.assertEqual(self.curve("without"), self.curve("exact"))
        self.fail_with(2, ["train.fp32_products", "bf16", "leave it out"], "train", "tiny.toml",
                       "--train.fp32_products=bf16", "--train.precision=bf16")

    def test_bf16_without_a_matrix_unit(self):
        """Told to leave AMX alone, oneDNN stands for an older processor: bf16 trains, and says what it costs."""
        warning = "no AMX here"
        train = ("train", "tiny.toml", "--ranks=2", "--train.steps=3", "--train.precision=bf16", "--parallel.zero=3")
        without = self.succeed(*train, "--output.folder=without", environment={"ONEDNN_MAX_CPU_ISA": "AVX2"})
        self.assertIn(warning, without)
        own = self.succeed(*train, "--output.folder=own")
        has_unit = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
        self.assertEqual(warning in own, not has_unit)
        self.assertNotIn(warning, self.succeed(*train[:-2], "--output.folder=fp32"))

    def test_offload(self):
        disk = ("--offload.optimizer=disk", "--offload.buffer_bytes=65536")
        for precision in ("--train.precision=fp32", "--train.precision=bf16"):
            self.setUp()
            self.compare(2, [(f"--parallel.zero={zero}", *disk) for zero in (0, 1, 2, 3)], precision)

    def test_optimizers(self):
        for name, rate in (("sgd", 0.1), ("lion", 1e-3), ("adafactor", 0.05), ("muon", 0.01), ("lamb", 0.02),
                           ("lars", 3)):
            self.setUp()
            self.compare(2, [(f"--parallel.zero={zero}",) for zero in (1, 3)], f"--optimizer.name={name}",
                         f"--optimizer.learning_rate={rate}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
