"""A user's program around a task (examples/07_own_task.cc) has what `trireme train` has."""
import json
import os
import random
import unittest

from program import ProgramTest

USER, PEER_LOST = 2, 3


def write_table(path, seed, rows):
    """Ten classes, each a pattern of 64 pixels, with noise."""
    patterns = random.Random(0)
    classes = [[patterns.randint(0, 16) for _ in range(64)] for _ in range(10)]
    noise = random.Random(seed)
    lines = [",".join([*(f"pixel{i}" for i in range(64)), "digit"])]
    for _ in range(rows):
        digit = noise.randrange(10)
        lines.append(",".join([*(str(max(0, p + noise.randint(-4, 4))) for p in classes[digit]), str(digit)]))
    path.write_text("\n".join(lines) + "\n")


class OwnTask(ProgramTest):
    program = os.environ["TRIREME_OWN_TASK"]
    layout = ["--ranks", 2, "--parallel.zero=3"]

    def prepare(self):
        write_table(self.folder / "digits.csv", 1, 500)
        write_table(self.folder / "digits.validation.csv", 2, 100)

    def command(self, run, *options):
        return ["train", "--train.steps=60", "--train.global_batch=32", "--train.micro_batch=8",
                "--train.evaluate_interval=20", "--train.evaluate_sequences=100", "--checkpoint.interval=5",
                "--optimizer.warmup_steps=5", f"--output.folder={run}", *options]

    def test_it_learns_and_says_how(self):
        output = self.succeed(*self.command("run", *self.layout))
        for words in ("model   chain of hidden0 -> hidden1 -> head", "data    digits, 500 samples",
                      "samples/s", "checkpoint"):
            self.assertIn(words, output)
        lines = self.metrics("run")
        self.assertEqual(len(lines), 60)
        self.assertIn("samples_per_second", lines[0])
        self.assertLess(lines[-1]["validation_loss"], 0.5 * lines[0]["loss"])
        self.assertGreater(lines[-1]["validation_accuracy"], 0.9)
        self.assertLess(lines[0]["accuracy"], lines[-1]["accuracy"])
        self.assertIn("[model]\nwidth = 128\nlayers = 2\n", (self.folder / "run/config.toml").read_text())
        self.succeed("checkpoint", "verify", "run")
        tensors = json.loads(self.succeed("checkpoint", "inspect", "run", "--json"))["tensors"]
        self.assertIn("hidden0.0.weight", [tensor["name"] for tensor in tensors])

    def test_killed_and_resumed_it_has_the_same_bits(self):
        self.assert_a_killed_run_resumes_with_the_same_bits(lambda run: self.command(run, *self.layout))

    def test_every_axis_that_it_can_use(self):
        self.succeed(*self.command("one"))
        for name, options in {"pipeline": ["--ranks", 3, "--parallel.pipeline=3"],
                              "recompute": ["--train.recompute=full"],
                              "offload": ["--ranks", 2, "--parallel.zero=2", "--offload.optimizer=disk"]}.items():
            self.succeed(*self.command(name, *options))
            for (_, loss, _), (_, expected, _) in zip(self.curve(name), self.curve("one"), strict=True):
                self.assertAlmostEqual(float(loss), float(expected), places=3, msg=name)

    def test_help_teaches_its_keys(self):
        output = self.succeed("train", "--help")
        for words in ("--model.width=128", "of the hidden layers", "--data.path=", "--train.steps=", "--ranks"):
            self.assertIn(words, output)
        self.assertIn("exit codes", self.succeed("--help").lower())

    def test_doctor_reads_its_records(self):
        self.succeed(*self.command("run", *self.layout))
        self.assertIn("ranks 0 and 1 ended", self.run_program("doctor", "run").stdout)

    def test_a_wrong_input_costs_one_line(self):
        lines = (self.folder / "digits.csv").read_text().splitlines()
        (self.folder / "ragged.csv").write_text("\n".join([*lines[:9], lines[9] + ",3"]) + "\n")
        for options, words in [(["--data.path=none"], ["none.csv"]),
                               (["--data.path=ragged"], ["ragged.csv:10 has 66 cells", "expected 65"]),
                               (["--model.widht=3"], ["did you mean", "model.width"]),
                               (["--task.name=digit"], ["task.name", "digits"]),
                               (["--parallel.tensor=2", "--ranks", 2], ["parallel.tensor", "digits", "set it to 1"]),
                               (["--train.recompute=selective"], ["selective", "digits"]),
                               (["--parallel.pipeline=4", "--ranks", 4], ["3 layers", "4 stages"])]:
            self.fail_with(USER, words, *self.command("run", *options))
            self.assertFalse((self.folder / "run").exists(), options)


if __name__ == "__main__":
    unittest.main()
