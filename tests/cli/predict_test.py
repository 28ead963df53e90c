"""`predict`: its answers are those of evaluation in training, and wrong inputs cost one line."""
import csv
import gzip
import json
import os
import pathlib
import random
import shutil
import unittest

import numpy
from PIL import Image

from own_task_test import write_table
from predictions import CLASSES, CLICKS, VISION, PredictTest, write_images

USER, BAD_CHECKPOINT = 2, 4
OWN = os.environ["TRIREME_OWN_TASK"]
class Images(PredictTest):
    def prepare(self):
        write_images(self.folder / "images/train", 8)
        write_images(self.folder / "images/validation", 10, seed=2)
        (self.folder / "vision.toml").write_text(VISION)

    def train(self, run="run", *options):
        self.succeed("train", "vision.toml", f"--output.folder={run}", *options)

    def right(self, answers):
        return sum(pathlib.Path(answer["path"]).parent.name == answer["class"] for answer in answers)

    def test_answers_are_those_of_evaluation_at_any_layout(self):
        self.train("run", "--ranks", 2, "--parallel.tensor=2", "--average.decay=0.5")
        accuracy = self.metrics()[-1]["validation_accuracy"]
        # The data is not needed, only the run's folder.
        (self.folder / "images").rename(self.folder / "moved")
        answers = self.predict("run", "moved/validation", "--batch", 7)
        self.assertEqual(len(answers), 30)
        self.assertEqual(self.right(answers), round(accuracy * 30))
        classified = json.loads(self.succeed("classify", "--checkpoint", "run", "--data", "moved", "--json"))
        self.assertEqual(self.right(answers), round(classified["accuracy"] * 30))
        for answer in self.predict("run", "moved/validation", "--top", 0, "--batch", 30):
            single = next(each for each in answers if each["path"] == answer["path"])
            self.assertEqual(answer["class"], single["class"])
            self.assertAlmostEqual(answer["probability"], single["probability"], places=6)
            self.assertEqual({each["class"] for each in answer["top"]}, set(CLASSES))
            self.assertAlmostEqual(sum(each["probability"] for each in answer["top"]), 1, places=12)
        average = self.predict("run", "moved/validation", "--average")
        self.assertNotEqual([each["probability"] for each in average], [each["probability"] for each in answers])
        self.assertEqual(json.loads((self.folder / "run/images.json").read_text())["classes"], sorted(CLASSES))

    def test_ranks_give_the_answers_of_one_rank(self):
        self.train("run", "--ranks", 2, "--average.decay=0.5")
        for options in (["--top", 0, "--batch", 7], ["--average", "--format", "csv", "--batch", 30]):
            common = ("predict", "run", "images/validation", "--threads", 1, *options)
            expected = self.succeed(*common)
            self.assertEqual(len(expected.splitlines()), 31 if "csv" in options else 30)
            for ranks, *layout in ((2,), (3,), (2, "--parallel.pipeline=2"), (2, "--parallel.zero=3"),
                                   (4, "--parallel.pipeline=2", "--parallel.transport=shm")):
                self.assertEqual(self.succeed(*common, "--ranks", ranks, *layout), expected, (ranks, layout))
        alone = self.predict("run", "images/validation", "--top", 0)
        for answer, expected in zip(self.predict("run", "images/validation", "--top", 0, "--ranks", 2,
                                                 "--parallel.tensor=2"), alone, strict=True):
            self.assertEqual(answer["path"], expected["path"])
            for one, other in zip(answer["top"], expected["top"], strict=True):
                self.assertAlmostEqual(one["probability"], other["probability"], places=5)
        # Ranks of a launcher; and a convolution's running statistics.
        said = self.succeed("run", "--nproc-per-node", 2, "--log-dir", "logs", "--", self.program, "predict", "run",
                            "images/validation", "--output", "out.jsonl")
        self.assertIn("predicted  30 rows", said)
        self.assertEqual(len((self.folder / "out.jsonl").read_text().splitlines()), 30)
        layers = ("patch_size", "layers", "width", "heads", "ffn_width")
        lines = [line for line in VISION.splitlines() if line.split(" ")[0] not in layers]
        text = "\n".join(lines).replace("[model]", '[model]\nfamily = "resnet18"\nstem = "small"')
        (self.folder / "vision.toml").write_text(text)
        self.train("resnet", "--train.steps=1", "--checkpoint.interval=1", "--train.evaluate_interval=0")
        common = ("predict", "resnet", "images/validation/blue", "--threads", 1, "--batch", 3)
        expected = self.succeed(*common)
        for layout in ([], ["--parallel.zero=3"], ["--parallel.pipeline=2"]):
            self.assertEqual(self.succeed(*common, "--ranks", 2, *layout), expected, layout)

    def test_ranks_are_refused_in_one_line(self):
        self.train()
        image = (self.folder / "images/validation/blue/00.png").read_bytes()
        (self.folder / "cut.png").write_bytes(image[:200])
        for arguments, words in [(["--parallel.context=2"], ["parallel.context", "parallel.tensor"]),
                                 (["--train.steps=3"], ["train.steps"]), (["--ranks", 0], ["--ranks"]),
                                 (["--ranks", 3, "--parallel.tensor=3"], ["parallel.tensor", "3"]),
                                 (["--ranks", 3, "--parallel.pipeline=2"], ["pipeline is 2", "3 ranks"]),
                                 (["--ranks", 2, "--parallel.expert=2"], ["parallel.expert"]),
                                 (["--ranks", 2, "--output", "none/out"], ["none/out"])]:
            self.fail_with(USER, words, "predict", "run", "images", *arguments)
        # A row in the middle is wrong.
        self.fail_with(USER, ["cut.png"], "predict", "run", "images", "cut.png", "--output", "out.jsonl", "--batch", 4,
                       "--ranks", 2)
        self.assertFalse((self.folder / "out.jsonl").exists())

    def test_files_and_tables(self):
        self.train()
        folder = self.folder / "images/validation/blue"
        (folder / "notes.txt").write_text("x")
        inputs = ["images/validation/blue", "images/validation/green/03.png"]
        result = self.run_program("predict", "run", *inputs, "--format", "csv", "--top", 2, "--output", "out.csv")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("predicted  11 rows", result.stdout)
        self.assertIn("left out   1 file that is not an image", result.stdout)
        with open(self.folder / "out.csv", newline="") as file:
            rows = list(csv.reader(file))
        self.assertEqual(rows[0], ["path", "row", "class", "probability", "class_2", "probability_2"])
        self.assertEqual((len(rows), rows[-1][:2]), (12, ["images/validation/green/03.png", ""]))
        # Of the same inputs: a product of fewer rows may round otherwise.
        answers = self.predict("run", *inputs, "--top", 2)
        for row, answer in zip(rows[1:], answers, strict=True):
            self.assertEqual((row[2], float(row[3]), row[4]),
                             (answer["class"], answer["probability"], answer["top"][1]["class"]))
        # A JPEG, and a checkpoint in place of the run.
        Image.open(folder / "00.png").save(self.folder / "one.jpg")
        self.assertEqual(len(self.predict("run/checkpoints/step-000012", "one.jpg")), 1)

    def test_a_run_of_earlier_versions_reads_the_data(self):
        self.train()
        answers = self.predict("run", "images/validation")
        (self.folder / "run/images.json").unlink()
        self.assertEqual(self.predict("run", "images/validation"), answers)
        (self.folder / "images").rename(self.folder / "moved")
        self.fail_with(USER, ["data.path is images"], "predict", "run", "moved/validation")
        moved = self.predict("run", "moved/validation", "--data", "moved")
        self.assertEqual([each["class"] for each in moved], [each["class"] for each in answers])

    def test_wrong_inputs_cost_one_line(self):
        self.train()
        (self.folder / "empty").mkdir()
        (self.folder / "text.png").write_text("no image")
        image = (self.folder / "images/validation/blue/00.png").read_bytes()
        (self.folder / "cut.png").write_bytes(image[:200])
        Image.new("RGB", (20, 16)).save(self.folder / "wide.png")
        for arguments, words in [(["run", "text.png"], ["text.png"]), (["run", "cut.png"], ["cut.png"]),
                                 (["run", "wide.png"], ["wide.png has 16 x 20", "16 x 16"]),
                                 (["run", "none.png"], ["none.png"]),
                                 (["run", "empty"], ["the folder empty has no images"]),
                                 (["run", "images", "--input-format", "criteo"], ["--input-format", "leave it out"]),
                                 (["run", "images", "--format", "xml"], ["--format", "json-lines"]),
                                 (["run", "images", "--output", "empty"], ["empty"]),
                                 (["run", "images", "--output", "none/out"], ["none/out"])]:
            self.fail_with(USER, words, "predict", *arguments)
        self.fail_with(BAD_CHECKPOINT, ["no average"], "predict", "run", "images", "--average")
        self.fail_with(BAD_CHECKPOINT, ["no checkpoint in empty"], "predict", "empty", "images")
        self.assertEqual(sorted(path.name for path in self.folder.glob("*out*")), [])
        # No part of a file stays when a row in the middle is wrong.
        self.fail_with(USER, ["cut.png"], "predict", "run", "images", "cut.png", "--output", "out.jsonl", "--batch", 4)
        self.assertFalse((self.folder / "out.jsonl").exists())
        (self.folder / "run/images.json").write_text("{}")
        self.fail_with(USER, ["images.json", "channels"], "predict", "run", "images")


def area_under_curve(scores, labels):
    """The exact one: pairs in the right order, ties at half."""
    positive = numpy.array([s for s, label in zip(scores, labels, strict=True) if label])[:, None]
    negative = numpy.array([s for s, label in zip(scores, labels, strict=True) if not label])[None, :]
    return float(((positive > negative) + 0.5 * (positive == negative)).mean())


class Clicks(PredictTest):
    def prepare(self):
        """Validation samples are all of day_1, so that they are in a file of their own as text."""
        for day, samples in enumerate((600, 300)):
            self.succeed("data", "generate", "--samples", samples, "--scale", 0.0001, "--seed", 3 + day,
                         "--output", f"day_{day}.tsv")
        (self.folder / "clicks.toml").write_text(CLICKS)
        self.labels = [line[0] == "1" for line in (self.folder / "day_1.tsv").read_text().splitlines()]
        self.write_unlabelled(self.folder / "rows.tsv")

    def write_unlabelled(self, path):
        lines = (self.folder / "day_1.tsv").read_text().splitlines()
        path.write_text("".join(line[2:] + "\n" for line in lines))

    def prepare_data(self, *options):
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day_0.tsv", "--validation", 0,
                     "--output", "data/clicks", *options)
        given = ["--ids", "hash"] if options else ["--dictionary", "data/clicks"]
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day_1.tsv", "--validation", 0,
                     "--output", "data/day_1", *given)
        shutil.copy(self.folder / "data/day_1/train.bin", self.folder / "data/clicks/validation.bin")
        schema = json.loads((self.folder / "data/clicks/features.json").read_text())
        (self.folder / "data/clicks/features.json").write_text(json.dumps({**schema, "validation_samples": 300}))

    def train(self, run, *options):
        self.succeed("train", "clicks.toml", f"--output.folder={run}", *options)
        return self.metrics(run)[-1].get("validation_auc")

    def test_answers_are_those_of_evaluation(self):
        self.prepare_data()
        runs = {"rows": ["--ranks", 2], "dcn": ["--model.family=dlrm-dcnv2", "--model.cross_rank=4"],
                "wide": ["--model.family=wide-deep", "--ranks", 2, "--tables.placement=columns"]}
        for run, options in runs.items():
            with self.subTest(run=run):
                auc = self.train(run, *options)
                answers = self.predict(run, "rows.tsv")
                self.assertEqual([each["row"] for each in answers], list(range(1, 301)))
                self.assertEqual(set(answers[0]), {"path", "row", "probability"})
                scores = [each["probability"] for each in answers]
                self.assertAlmostEqual(area_under_curve(scores, self.labels), auc, places=12)
                one = self.predict(run, "rows.tsv", "--threads", 1)
                for ranks in (2, 3):
                    shared = self.predict(run, "rows.tsv", "--threads", 1, "--ranks", ranks)
                    self.assertEqual(shared, one, f"on {ranks} ranks")
                labelled = self.predict(run, "day_1.tsv", "--batch", 300)
                for one, other in zip(scores, labelled, strict=True):
                    self.assertAlmostEqual(one, other["probability"], places=6)

    def test_tables_of_any_ids_and_compressed_rows(self):
        self.prepare_data("--ids", "hash")
        auc = self.train("open", "--ranks", 2, "--tables.open=all")
        shutil.rmtree(self.folder / "data")  # hashes need no dictionary
        (self.folder / "rows.tsv.gz").write_bytes(gzip.compress((self.folder / "rows.tsv").read_bytes()))
        answers = self.predict("open", "rows.tsv.gz")
        self.assertAlmostEqual(area_under_curve([each["probability"] for each in answers], self.labels), auc, places=12)
        self.assertEqual(self.predict("open", "rows.tsv.gz", "--threads", 1, "--ranks", 2, "--batch", 50),
                         self.predict("open", "rows.tsv.gz", "--threads", 1, "--batch", 50))

    def test_wrong_rows_cost_one_line(self):
        self.prepare_data()
        self.train("run", "--train.steps=1", "--checkpoint.interval=1", "--train.evaluate_interval=0")
        self.fail_with(USER, ["parallel.tensor is 2", "no plan for it"], "predict", "run", "rows.tsv", "--ranks", 2,
                       "--parallel.tensor=2")
        lines = (self.folder / "rows.tsv").read_text().splitlines()
        packed = gzip.compress((self.folder / "rows.tsv").read_bytes())
        (self.folder / "cut.tsv.gz").write_bytes(packed[:-40])
        (self.folder / "short.tsv").write_text("\n".join([lines[0], lines[1].rsplit("\t", 2)[0]]) + "\n")
        (self.folder / "word.tsv").write_text(lines[0] + "\nx" + lines[1] + "\n")
        (self.folder / "pairs.tsv").write_text("query\titem\na\tb\n")
        (self.folder / "nothing.tsv").write_text("")
        for arguments, words in [(["cut.tsv.gz"], ["cut.tsv.gz", "ends in the middle"]),
                                 (["short.tsv"], ["short.tsv:2 has 37 columns", "39, without the label"]),
                                 (["word.tsv"], ["word.tsv:2", "I1", "finite number"]),
                                 (["nothing.tsv"], ["nothing.tsv is empty"]), (["none.tsv"], ["none.tsv"]),
                                 (["pairs.tsv", "--input-format", "pairs"], ["pairs.tsv", "expected rows in the format"]),
                                 (["rows.tsv", "--input-format", "xml"], ["--input-format", "criteo"]),
                                 (["rows.tsv", "--data", "none"], ["none has no dictionary.txt", "--data"])]:
            self.fail_with(USER, words, "predict", "run", *arguments, "--output", "out")
            self.assertFalse((self.folder / "out").exists(), arguments)
        # Another dictionary has other rows.
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day_1.tsv", "--validation", 0, "--min-count", 2,
                     "--output", "data/other")
        self.fail_with(USER, ["data/other", "--data"], "predict", "run", "rows.tsv", "--data", "data/other")


class Pairs(PredictTest):
    """Users, and the things that each has chosen: those whose number differs from the user's by a multiple of 5."""
    USERS, THINGS = 20, 35

    def line(self, user, thing):
        return f"u{user}\tg{user % 5}\ti{thing}\t{'even|' if thing % 2 == 0 else ''}t{thing % 7}\n"

    def write(self, name, pairs):
        (self.folder / name).write_text("query\tquery.group\titem\titem.tags*\n" + "".join(self.line(*pair) for pair in pairs))

    def prepare(self):
        chosen = [(user, thing) for user in range(self.USERS) for thing in range(self.THINGS) if (user - thing) % 5 == 0]
        random.Random(1).shuffle(chosen)
        self.write("all.tsv", chosen)
        self.asked = chosen[:31]
        self.write("asked.tsv", self.asked)
        (self.folder / "pairs.toml").write_text(CLICKS.replace("[model]", '[model]\nfamily = "two-tower"'))
        for name, given in (("all", []), ("asked", ["--dictionary", "data/clicks"])):
            self.succeed("data", "prepare", "--format", "pairs", "--input", f"{name}.tsv", "--validation", 0,
                         "--output", "data/asked" if given else "data/clicks", *given)
        shutil.copy(self.folder / "data/asked/train.bin", self.folder / "data/clicks/validation.bin")
        schema = json.loads((self.folder / "data/clicks/features.json").read_text())
        (self.folder / "data/clicks/features.json").write_text(
            json.dumps({**schema, "validation_samples": len(self.asked)}))

    def test_scores_order_the_items_as_the_evaluation_does(self):
        self.write("rows.tsv", [(user, thing) for user, _ in self.asked for thing in range(self.THINGS)])
        for run, options in (("one", []), ("rows", ["--ranks", 2, "--tables.optimizer=lazy-adam"]),
                             ("adam", ["--tables.optimizer=adam", "--tables.learning_rate=0.01"])):
            with self.subTest(run=run):
                self.succeed("train", "pairs.toml", f"--output.folder={run}", *options)
                answers = self.predict(run, "rows.tsv", "--batch", 50)
                self.assertEqual(set(answers[0]), {"path", "row", "score"})
                self.assertTrue(all(abs(each["score"]) < 1 + 1e-6 for each in answers))
                hits = 0
                for i, (_, wanted) in enumerate(self.asked):
                    scores = [each["score"] for each in answers[i * self.THINGS:(i + 1) * self.THINGS]]
                    hits += sum(score > scores[wanted] for score in scores) < 10
                self.assertAlmostEqual(hits / len(self.asked), self.metrics(run)[-1]["validation_recall_at_10"], places=12)
                self.assertEqual(self.predict(run, "asked.tsv", "--batch", 4, "--threads", 1, "--ranks", 2),
                                 self.predict(run, "asked.tsv", "--batch", 4, "--threads", 1))
                alone = self.predict(run, "asked.tsv", "--input-format", "pairs")
                for i, (_, wanted) in enumerate(self.asked):
                    self.assertAlmostEqual(alone[i]["score"], answers[i * self.THINGS + wanted]["score"], places=6)

    def test_hashed_items_need_no_dictionary(self):
        shutil.rmtree(self.folder / "data")
        self.succeed("data", "prepare", "--format", "pairs", "--input", "all.tsv", "--ids", "hash", "--validation", 0,
                     "--output", "data/clicks")
        self.succeed("train", "pairs.toml", "--tables.open=all", "--train.evaluate_interval=0", "--train.steps=40")
        shutil.rmtree(self.folder / "data")
        self.write("rows.tsv", [(user, thing) for user in range(self.USERS) for thing in range(self.THINGS)])
        scores = [each["score"] for each in self.predict("run", "rows.tsv")]
        chosen = [(user - thing) % 5 == 0 for user in range(self.USERS) for thing in range(self.THINGS)]
        self.assertGreater(area_under_curve(scores, chosen), 0.7)

    def test_rows_without_an_item_cost_one_line(self):
        self.succeed("train", "pairs.toml", "--train.steps=1", "--checkpoint.interval=1", "--train.evaluate_interval=0")
        (self.folder / "half.tsv").write_text("query\tquery.group\titem\titem.tags*\nu1\tg1\n")
        self.fail_with(USER, ["half.tsv:2 has 2 columns"], "predict", "run", "half.tsv")
        (self.folder / "other.tsv").write_text("query\titem\nu1\ti1\n")
        self.fail_with(USER, ["other.tsv", "query.group"], "predict", "run", "other.tsv")


class OwnTask(PredictTest):
    program = OWN

    def prepare(self):
        write_table(self.folder / "digits.csv", 1, 300)
        write_table(self.folder / "digits.validation.csv", 2, 100)

    def test_a_program_of_a_user_predicts(self):
        self.succeed("train", "--train.steps=15", "--train.global_batch=32", "--train.micro_batch=8", "--ranks", 2,
                     "--parallel.zero=3", "--train.evaluate_interval=15", "--train.evaluate_sequences=100",
                     "--checkpoint.interval=15", "--optimizer.warmup_steps=1", "--output.folder=run")
        lines = [line.split(",") for line in (self.folder / "digits.validation.csv").read_text().splitlines()]
        order = list(range(64))
        random.Random(1).shuffle(order)
        (self.folder / "rows.csv").write_text("".join(",".join(line[i] for i in order) + "\n" for line in lines))
        answers = self.predict("run", "rows.csv")
        right = sum(answer["class"] == line[-1] for answer, line in zip(answers, lines[1:], strict=True))
        self.assertEqual(right, round(100 * self.metrics()[-1]["validation_accuracy"]))
        one = self.predict("run", "rows.csv", "--threads", 1, "--top", 3)
        for layout in ([], ["--parallel.pipeline=2"], ["--parallel.zero=3"]):
            self.assertEqual(self.predict("run", "rows.csv", "--threads", 1, "--top", 3, "--ranks", 2, *layout), one, layout)
        (self.folder / "digits.csv").rename(self.folder / "moved.csv")
        self.assertEqual(self.predict("run", "rows.csv", "--data", "moved"), answers)
        self.fail_with(USER, ["digits.csv"], "predict", "run", "rows.csv")
        (self.folder / "wrong.csv").write_text("pixel0\n1\n")
        self.fail_with(USER, ["wrong.csv has no column", "pixel1"], "predict", "run", "wrong.csv", "--data", "moved")


class OtherTasks(PredictTest):
    def test_runs_without_answers_name_the_command(self):
        self.succeed("train", "tiny.toml", "--train.steps=1", "--checkpoint.interval=1")
        self.fail_with(USER, ["trireme generate", "trireme evaluate"], "predict", "run", "text/0.txt")
        write_images(self.folder / "images/train", 2)
        (self.folder / "diffusion.toml").write_text(VISION.replace("vision", "diffusion").replace("ffn_width = 24", ""))
        self.succeed("train", "diffusion.toml", "--train.steps=1", "--checkpoint.interval=1", "--output.folder=drawn",
                     "--train.evaluate_interval=0")
        for options in ([], ["--ranks", 2]):
            self.fail_with(USER, ["trireme sample"], "predict", "drawn", "images", *options)
        # A program without the run's task.
        self.program = OWN
        self.fail_with(USER, ["diffusion"], "predict", "drawn", "images")


if __name__ == "__main__":
    unittest.main()
