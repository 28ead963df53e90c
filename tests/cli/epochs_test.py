"""train.epochs: the steps of so many passes over the data, also for a run that resumes, and what the program says."""
import re
import unittest

from program import ProgramTest


class Epochs(ProgramTest):
    def train(self, run, *options, ranks=1):
        return self.succeed("train", "tiny.toml", "--ranks", ranks, "--threads", 1, "--train.micro_batch=1",
                            "--train.global_batch=16", "--checkpoint.interval=7", f"--output.folder={run}", *options)

    def saved(self, run, key):
        return float(re.search(rf"^{key} = (\S+)$", (self.folder / run / "config.toml").read_text(), re.M)[1])

    def test_epochs_are_steps(self):
        output = self.train("run", "--train.epochs=0.25")
        steps = len(self.curve("run"))
        self.assertRegex(output, rf"\(0\.2\d epochs in {steps} steps\)")
        self.assertEqual((self.saved("run", "steps"), self.saved("run", "epochs")), (steps, 0.25))
        self.train("fixed", f"--train.steps={steps}")
        self.assertEqual(self.curve("run"), self.curve("fixed"))
        self.assertIn("more with --train.epochs=0.5", self.train("run", "--train.epochs=0.25"))

    def test_a_run_goes_on_to_more_epochs_at_another_layout_and_batch(self):
        self.train("whole", "--train.epochs=0.5", "--optimizer.schedule=constant")
        self.train("parts", "--train.epochs=0.25", "--optimizer.schedule=constant")
        self.train("parts", "--train.epochs=0.5", "--optimizer.schedule=constant")
        self.assertEqual(self.curve("parts"), self.curve("whole"))
        self.train("other", "--train.epochs=0.25")
        begun = len(self.curve("other"))
        self.train("other", "--train.epochs=0.5", "--train.global_batch=8", ranks=2)
        self.assertAlmostEqual(len(self.curve("other")) - begun, 2 * begun, delta=2)

    def test_the_planner_reads_the_data(self):
        (self.folder / "cluster.toml").write_text('[cluster]\nnodes = 1\ndevices_per_node = 2\ndevice = "cpu"\n')
        self.train("run", "--train.epochs=0.25")
        options = ("tiny.toml", "cluster.toml", "--train.micro_batch=1", "--train.global_batch=16", "--train.epochs=0.25")
        shown = f"{len(self.curve('run'))} steps"
        self.assertIn(shown, self.succeed("plan", *options))
        self.assertIn(shown, self.succeed("simulate", *options))
        self.fail_with(2, ["train.epochs is 0.25", "nowhere", "set train.epochs = 0"], "plan", *options,
                       "--data.path=nowhere", "--model.vocab_size=256")

    def test_refusals(self):
        self.fail_with(2, ["train.epochs"], "train", "tiny.toml", "--train.epochs=-1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
