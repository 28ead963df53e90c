"""`predict` of a user's program around an annotated module: the answers of one rank at every layout."""
import os
import unittest

from own_task_test import write_table
from predictions import PredictTest


class AnnotatedPredict(PredictTest):
    program = os.environ["TRIREME_ANNOTATED_DIGITS"]

    def prepare(self):
        write_table(self.folder / "digits.csv", 1, 300)
        write_table(self.folder / "digits.validation.csv", 2, 100)

    def test_answers_are_those_of_evaluation_at_any_layout(self):
        self.succeed("train", "--train.steps=15", "--train.global_batch=32", "--train.micro_batch=8", "--ranks", 4,
                     "--parallel.tensor=2", "--parallel.zero=3", "--train.evaluate_interval=15",
                     "--train.evaluate_sequences=100", "--checkpoint.interval=15", "--optimizer.warmup_steps=1",
                     "--output.folder=run")
        lines = (self.folder / "digits.validation.csv").read_text().splitlines()[1:]
        answers = self.predict("run", "digits.validation.csv", "--threads", 1, "--top", 0)
        right = sum(answer["class"] == line.split(",")[-1] for answer, line in zip(answers, lines, strict=True))
        self.assertEqual(right, round(100 * self.metrics()[-1]["validation_accuracy"]))
        common = ("run", "digits.validation.csv", "--threads", 1, "--top", 0, "--ranks")
        for layout in ([], ["--parallel.pipeline=2"], ["--parallel.zero=3"]):
            self.assertEqual(self.predict(*common, 2, *layout), answers, layout)
        for answer, expected in zip(self.predict(*common, 4, "--parallel.tensor=2", "--parallel.pipeline=2"), answers,
                                    strict=True):
            self.assertEqual((answer["row"], answer["class"]), (expected["row"], expected["class"]))
            self.assertAlmostEqual(answer["probability"], expected["probability"], places=5)


if __name__ == "__main__":
    unittest.main()
