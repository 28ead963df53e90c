"""Optimizers whose ranks exchange signs, and Adasum: they learn, send what they say, and every layout agrees."""
import json
import statistics
import unittest

from program import ProgramTest

STEPS, LAST = 160, 10
# Optimizer: the one without signs; options.
OPTIMIZERS = {
    "onebit-adam": ("adamw", ["--optimizer.freeze_step=60"]),
    "onebit-lamb": ("lamb", ["--optimizer.freeze_step=60"]),
    "zero-one-adam": ("adamw", []),
}
RATES = {"adamw": "5e-3", "lamb": "2e-2"}


class OneBit(ProgramTest):
    def train(self, run, ranks, *overrides, steps=STEPS):
        self.succeed("train", "tiny.toml", "--ranks", ranks, "--threads", 1, f"--train.steps={steps}",
                     "--train.global_batch=12", "--train.micro_batch=2", "--checkpoint.interval=0",
                     f"--output.folder={run}", *overrides)
        return [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]

    def test_every_optimizer_learns_with_few_bytes_at_every_stage(self):
        for name, (other, options) in OPTIMIZERS.items():
            with self.subTest(optimizer=name):
                rate = f"--optimizer.learning_rate={RATES[other]}"
                plain = self.train(f"{name}-plain", 3, rate, f"--optimizer.name={other}")
                last = statistics.mean(step["loss"] for step in plain[-LAST:])
                learned = plain[0]["loss"] - last
                self.assertGreater(learned, 0.5)
                chosen = [rate, f"--optimizer.name={name}", *options]
                steps = self.train(name, 3, *chosen)
                mine = statistics.mean(step["loss"] for step in steps[-LAST:])
                share = steps[-1]["gradient_bytes"] / plain[-1]["gradient_bytes"]
                print(f"{name}: {share:.3f} of the bytes, loss {mine:.4f} against {last:.4f}, "
                      f"{(mine - last) / learned:+.4f} of what was learned", flush=True)
                self.assertLess(mine - last, 0.15 * learned)
                self.assertLess(share, 0.12)
                for zero in (2, 3):
                    self.train(f"{name}-{zero}", 3, *chosen, f"--parallel.zero={zero}")
                    self.assertEqual(self.curve(f"{name}-{zero}"), self.curve(name), zero)

    def test_pipelines_and_tensor_ranks_train_the_same_model(self):
        chosen = ["--optimizer.name=onebit-adam", "--optimizer.freeze_step=4", "--train.precision=fp64"]
        flat = self.train("flat", 2, *chosen, steps=8)
        for name, axes in {"pipeline": ["--parallel.pipeline=2"], "tensor": ["--parallel.tensor=2"],
                           "pipeline, zero 3": ["--parallel.pipeline=2", "--parallel.zero=3"]}.items():
            with self.subTest(layout=name):
                other = self.train(name, 4, *chosen, *axes, steps=8)
                # Blocks lie within a rank's part of a parameter, so tensor ranks have others.
                close = 0.1 if name == "tensor" else 1e-8
                for mine, theirs in zip(other, flat, strict=True):
                    self.assertLess(abs(mine["loss"] - theirs["loss"]), close * theirs["loss"], mine["step"])

    def test_adasum_learns_at_any_number_of_ranks_and_stage(self):
        for ranks in (2, 3):
            chosen = ["--train.gradient_sum=adasum", "--optimizer.learning_rate=5e-3"]
            steps = self.train(f"adasum{ranks}", ranks, *chosen)
            self.assertLess(steps[-1]["loss"], steps[0]["loss"] - 1.0)
            self.train(f"adasum{ranks}-3", ranks, *chosen, "--parallel.zero=3")
            self.assertEqual(self.curve(f"adasum{ranks}-3"), self.curve(f"adasum{ranks}"))

    def test_settings_that_exclude_each_other(self):
        for overrides, words in ((["--optimizer.name=onebit-adam", "--train.compression=topk"], ["topk", "default"]),
                                 (["--optimizer.name=onebit-adam", "--train.precision=fp16"], ["bf16"]),
                                 (["--optimizer.name=onebit-lamb", "--parallel.tensor=2"], ["whole matrices"]),
                                 (["--train.gradient_sum=adasum", "--parallel.tensor=2"], ["whole gradients"])):
            self.fail_with(2, words, "train", "tiny.toml", "--ranks", 4, *overrides)


if __name__ == "__main__":
    unittest.main(verbosity=2)
