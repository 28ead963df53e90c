"""Gradient compression: it learns what plain training learns, sends what it says, and every ZeRO stage agrees."""
import json
import statistics
import unittest

from program import ProgramTest

STEPS, LAST = 160, 10
# Rule: options; most of plain's bytes; how far the last losses may lie above plain's, of what plain has learned.
RULES = {
    "bf16": ([], 0.5, 0.01),
    "fp16": ([], 0.5, 0.01),
    "int8": ([], 0.28, 0.01),
    "powersgd": ([], 0.25, 0.10),
    "topk": (["--train.compression_ratio=0.1"], 0.31, 0.10),
}


class Compression(ProgramTest):
    def train(self, run, *overrides):
        self.succeed("train", "tiny.toml", "--ranks", 3, "--threads", 1, f"--train.steps={STEPS}",
                     "--train.global_batch=12", "--train.micro_batch=4", "--optimizer.learning_rate=5e-3",
                     "--checkpoint.interval=0", f"--output.folder={run}", *overrides)
        return [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]

    def test_every_rule_learns_with_few_bytes_at_every_stage(self):
        plain = self.train("plain")
        last = statistics.mean(step["loss"] for step in plain[-LAST:])
        learned = plain[0]["loss"] - last
        self.assertGreater(learned, 2.0)
        for rule, (options, share, distance) in RULES.items():
            with self.subTest(rule=rule):
                option = f"--train.compression={rule}"
                steps = self.train(rule, option, *options)
                self.assertLessEqual(steps[-1]["gradient_bytes"], share * plain[-1]["gradient_bytes"])
                mine = statistics.mean(step["loss"] for step in steps[-LAST:])
                print(f"{rule}: {steps[-1]['gradient_bytes'] / plain[-1]['gradient_bytes']:.3f} of the bytes, "
                      f"loss {mine:.4f} against {last:.4f}, {(mine - last) / learned:+.4f} of what was learned", flush=True)
                self.assertLess(mine - last, distance * learned)
                self.assertNotEqual(self.curve(rule), self.curve("plain"))
                for zero in (2, 3):
                    self.train(f"{rule}-{zero}", option, *options, f"--parallel.zero={zero}")
                    self.assertEqual(self.curve(f"{rule}-{zero}"), self.curve(rule), zero)

    def test_settings_that_exclude_each_other(self):
        for overrides, words in ((["--train.reproducible=true"], ["train.reproducible"]),
                                 (["--parallel.zero=2", "--parallel.shard=2"], ["parallel.shard = 0"]),
                                 (["--train.precision=fp16"], ["loss scale", "bf16"]),
                                 (["--train.compression_ratio=0"], ["compression_ratio", "at most 1"])):
            self.fail_with(2, words, "train", "tiny.toml", "--ranks", 4, "--train.compression=topk", *overrides)


if __name__ == "__main__":
    unittest.main(verbosity=2)
