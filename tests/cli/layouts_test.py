"""A layout changes nothing: two ranks against one with twice the accumulation."""
import unittest

from program import ProgramTest


class Layouts(ProgramTest):
    def train(self, run, ranks, *overrides):
        self.succeed("train", "tiny.toml", "--ranks", ranks, "--train.steps=50",
                     "--checkpoint.interval=0", f"--output.folder={run}", *overrides)
        curve = self.curve(run)
        self.assertEqual([step for step, _, _ in curve], list(range(1, 51)))
        return curve

    def assert_close(self, one, two, tolerance):
        for (step, *expected), (_, *found) in zip(one, two, strict=True):
            for x, y in zip(map(float, expected), map(float, found), strict=True):
                self.assertLessEqual(abs(x - y), tolerance * abs(x), f"step {step}")

    def test_two_ranks_are_one_rank_with_twice_the_accumulation(self):
        for precision, tolerance in (("fp32", 1e-5), ("fp64", 1e-12)):
            with self.subTest(precision=precision):
                option = f"--train.precision={precision}"
                one = self.train(f"one-{precision}", 1, option)
                two = self.train(f"two-{precision}", 2, option)
                self.assert_close(one, two, tolerance)
                self.assertLess(float(two[-1][1]), float(two[0][1]) - 0.5)  # it learns

    def test_two_runs_of_one_layout_have_the_same_bits(self):
        for ranks in (1, 2):
            self.assertEqual(self.train(f"first-{ranks}", ranks),
                             self.train(f"second-{ranks}", ranks))

    def test_the_transport_changes_no_bit(self):
        expected = self.train("shm", 4)
        result = self.run_program("train", "tiny.toml", "--ranks", 4, "--train.steps=50", "--checkpoint.interval=0",
                                  "--output.folder=gloo", "--parallel.transport=gloo")
        if "needs Gloo, which this build lacks" in result.stderr:
            self.assertEqual(result.returncode, 2)
        else:
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(self.curve("gloo"), expected)

    def test_a_seed_matters(self):
        self.assertNotEqual(self.train("a", 1), self.train("b", 1, "--train.seed=7"))
        self.assertNotEqual(self.train("c", 1), self.train("d", 1, "--data.seed=7"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
