"""Unequal shares of a batch: the losses of one rank, the same bits when replayed and after a resume, and refusals."""
import json
import os
import unittest

from program import ProgramTest


class Shares(ProgramTest):
    def write(self, *lines, name="given.jsonl"):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            for step, sizes in lines:
                print(json.dumps({"step": step, "micro_batches": sizes}), file=file)
        return path

    def train(self, run, *options, ranks=1, steps=6):
        self.succeed("train", "tiny.toml", "--ranks", ranks, "--threads", 1, "--train.micro_batch=4",
                     "--optimizer.schedule=constant", "--train.precision=fp64", f"--train.steps={steps}",
                     "--checkpoint.interval=2", f"--output.folder={run}", *options)
        return self.curve(run)

    def assert_near(self, expected, found, what):
        # fp64 sums in another order: 1e-12 relative per step, over six steps.
        self.assertEqual(len(expected), len(found))
        for (step, loss, norm), (_, other, other_norm) in zip(expected, found):
            for a, b in ((loss, other), (norm, other_norm)):
                self.assertLess(abs(float(a) - float(b)), 1e-11 * abs(float(a)), (what, step))

    def test_shares_train_as_one_rank_does(self):
        expected = self.train("one")
        for i, (ranks, sizes, *axes) in enumerate((
                (2, [3, 1]), (2, [0, 4], "--parallel.zero=1"), (2, [3, 1], "--parallel.zero=2"),
                (3, [1, 2, 5], "--parallel.zero=3"), (3, [1, 2, 5]), (4, [1, 0, 5, 2], "--parallel.zero=3"),
                (4, [3, 1], "--parallel.pipeline=2"), (4, [1, 3], "--parallel.tensor=2"),
                (4, [3, 1], "--parallel.context=2"))):
            found = self.train(f"run{i}", f"--train.shares={self.write((1, sizes))}", *axes, ranks=ranks)
            self.assert_near(expected, found, (sizes, axes))
            self.assertEqual([line["micro_batches"] for line in self.metrics(f"run{i}")], [sizes] * 6)

    def test_a_batch_that_shares_do_not_divide(self):
        batch = ("--train.global_batch=13", "--train.uneven_batches=true")
        expected = self.train("one", *batch)
        for zero in (0, 3):
            found = self.train(f"zero{zero}", *batch, f"--train.shares={self.write((1, [3, 1]))}",
                               f"--parallel.zero={zero}", ranks=2)
            self.assert_near(expected, found, zero)

    def test_a_replay_and_a_resume_have_the_same_bits(self):
        given = self.write((1, [3, 1]), (3, [1, 3]), (5, [4, 0]))
        zero = "--parallel.zero=3"
        expected = self.train("whole", f"--train.shares={given}", zero, ranks=2)
        self.assertEqual([line["micro_batches"] for line in self.metrics("whole")],
                         [[3, 1]] * 2 + [[1, 3]] * 2 + [[4, 0]] * 2)
        self.assert_near(self.train("one"), expected, "changing shares")
        record = os.path.join(self.folder, "whole", "shares.jsonl")
        self.assertEqual(self.train("again", f"--train.shares={record}", zero, ranks=2), expected)
        # In mid-run, and without the file: the checkpoint has the shares.
        self.train("parts", f"--train.shares={given}", zero, ranks=2, steps=3)
        self.assertEqual(self.train("parts", zero, ranks=2), expected)

    def test_a_resume_with_other_shares_records_both(self):
        zero = "--parallel.zero=2"
        self.train("run", zero, "--train.micro_batch=2", ranks=2, steps=2)
        found = self.train("run", zero, "--train.micro_batch=2", f"--train.shares={self.write((1, [1, 3]))}", ranks=2)
        record = os.path.join(self.folder, "run", "shares.jsonl")
        with open(record) as file:
            self.assertEqual([json.loads(line) for line in file],
                             [{"step": 1, "micro_batches": [2, 2]}, {"step": 3, "micro_batches": [1, 3]}])
        self.assertEqual(self.train("again", zero, f"--train.shares={record}", ranks=2), found)

    def test_other_ranks_go_on_with_equal_shares(self):
        self.train("run", f"--train.shares={self.write((1, [3, 1]))}", ranks=2, steps=2)
        output = self.succeed("train", "tiny.toml", "--train.steps=3", "--train.precision=fp64",
                              "--optimizer.schedule=constant", "--output.folder=run")
        self.assertIn("shares of the data ranks: equal from here on", output)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "run", "shares.jsonl")))

    def test_refusals(self):
        good = [(1, [3, 1])]
        for words, lines, *options in (
                (["for 3 data ranks", "there are 2"], [(1, [1, 2, 1])]),
                (["line 1", "no sample"], [(1, [0, 0])]),
                (["do not divide train.global_batch = 16", "such as 20"], [(1, [3, 2])]),
                (["line 1", "step is 2", "expected 1"], [(2, [3, 1])]),
                (["line 3", "step 4 follows step 4", "ascending"], [(1, [3, 1]), (4, [1, 3]), (4, [3, 1])]),
                (["line 2", "sum to 5", "same sum"], [(1, [3, 1]), (2, [3, 2])]),
                (["line 2", "1 ranks"], [(1, [3, 1]), (2, [4])]),
                (["micro_batches[0] is -1"], [(1, [-1, 5])]),
                (["train.reproducible"], good, "--train.reproducible=true"),
                (["train.measure_noise"], good, "--train.measure_noise=true"),
                (["train.batch_ramp_start is 2", "train.shares per forward = 4"], good, "--train.batch_ramp_start=2",
                 "--train.batch_ramp_steps=2"),
                (["parallel.servers", "train.shares"], good, "--parallel.servers=1", "--ranks=3",
                 "--train.gradient_clip=0")):
            ranks = () if "--ranks=3" in options else ("--ranks=2",)
            self.fail_with(2, words, "train", "tiny.toml", *ranks, f"--train.shares={self.write(*lines)}", *options)
        for text, words in (("", ["no shares"]), ("[" * 90, ["line 1"]), ("{\"step\": 1}\n", ["micro_batches"]),
                            ("\x00\xff", ["line 1"])):
            with open(os.path.join(self.folder, "given.jsonl"), "w", encoding="latin-1") as file:
                file.write(text)
            self.fail_with(2, ["train.shares", *words], "train", "tiny.toml", "--ranks=2", "--train.shares=given.jsonl")
        for path, words in (("none.jsonl", ["does not exist"]), (".", ["not a file"])):
            self.fail_with(2, words, "train", "tiny.toml", "--ranks=2", f"--train.shares={path}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
