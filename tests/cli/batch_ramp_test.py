"""A batch that grows: the losses of runs with constant batches that resume each other, at any layout and after a kill."""
import unittest

from program import ProgramTest

RAMP = ("--train.global_batch=16", "--train.batch_ramp_start=4", "--train.batch_ramp_steps=6")
SIZES = (4, 4, 8, 8, 12, 12, 16, 16)  # of the steps
STEPS = len(SIZES)


class BatchRamp(ProgramTest):
    def train(self, run, *options, ranks=1, steps=STEPS):
        self.succeed("train", "tiny.toml", "--ranks", ranks, "--threads", 1, "--train.micro_batch=2",
                     "--optimizer.schedule=constant", "--train.precision=fp64", f"--train.steps={steps}",
                     "--checkpoint.interval=1", f"--output.folder={run}", *options)
        return self.curve(run)

    def test_a_ramp_is_a_sequence_of_constant_batches(self):
        for axes in ((), ("--parallel.zero=3",)):
            self.setUp()
            ranks = 2 if axes else 1
            ramp = self.train("ramp", *RAMP, *axes, ranks=ranks)
            for step, size in enumerate(SIZES, 1):
                if step == STEPS or SIZES[step] != size:
                    expected = self.train("constant", f"--train.global_batch={size}", *axes, ranks=ranks, steps=step)
            self.assertEqual(ramp, expected)

    def test_a_resume_within_the_ramp_changes_no_bit(self):
        expected = self.train("whole", *RAMP)
        self.train("parts", *RAMP, steps=3)
        self.assertEqual(self.train("parts", *RAMP), expected)

    def test_layouts_agree(self):
        # fp64 sums in another order: 1e-12 relative per step, over eight steps.
        expected = self.train("one", *RAMP)
        for i, (ranks, *axes) in enumerate(((2,), (2, "--parallel.pipeline=2"), (2, "--parallel.tensor=2"),
                                            (2, "--parallel.zero=2", "--train.recompute=full"),
                                            (4, "--parallel.pipeline=2", "--parallel.schedule=zero-bubble",
                                             "--parallel.zero=1"))):
            found = self.train(f"run{i}", *RAMP, *axes, ranks=ranks)
            for (step, loss, norm), (_, other, other_norm) in zip(expected, found):
                for a, b in ((loss, other), (norm, other_norm)):
                    self.assertLess(abs(float(a) - float(b)), 1e-11 * abs(float(a)), (axes, step))

    def test_the_rate_follows_the_batch_where_it_is_scaled(self):
        self.train("run", *RAMP, "--optimizer.warmup_steps=0", "--optimizer.learning_rate=1e-3",
                   "--optimizer.batch_scaling=linear", "--optimizer.base_batch=16")
        rates = [line["learning_rate"] for line in self.metrics("run")]
        for rate, size in zip(rates, SIZES):
            self.assertAlmostEqual(rate, 1e-3 * size / 16, 9)

    def test_the_start_says_so(self):
        output = self.succeed("train", "tiny.toml", "--train.micro_batch=2", "--train.steps=2", *RAMP)
        self.assertIn("batch   grows from 4 to 16 samples in 6 steps", output)

    def test_refusals(self):
        for words, *options in (
                (["train.batch_ramp_start is 6", "divisor of train.global_batch = 16"], "--train.batch_ramp_start=6"),
                (["train.batch_ramp_start is 2", "data ranks = 4"], "--train.batch_ramp_start=2", "--ranks=2"),
                (["train.batch_ramp_steps 0", "set both"], "--train.batch_ramp_steps=0"),
                (["train.reproducible", "power of two"], "--train.reproducible=true"),
                (["train.measure_noise"], "--train.measure_noise=true"),
                (["data.last_batch", "keep"], "--data.last_batch=keep"),
                (["parallel.servers", "train.batch_ramp_start"], "--parallel.servers=1", "--ranks=3",
                 "--train.gradient_clip=0")):
            self.fail_with(2, words, "train", "tiny.toml", "--train.micro_batch=2", *RAMP, *options)


if __name__ == "__main__":
    unittest.main(verbosity=2)
