"""CSV tables for recommendation models: prepared with a schema, trained on, predicted from, refused in one line."""
import gzip
import json
import random
import signal
import time
import unittest

from predictions import CLICKS, PredictTest
from program import zstd_of

USER = 2
SCHEMA = ["--numeric", "age:standard,price_*", "--category", "city", "--label", "clicked", "--drop", "id"]


def table(rows, seed=1, first=0, labelled=True):
    """Rows of people, of whom the older ones of some cities click."""
    draw = random.Random(seed)
    lines = ["id,age,price_old,city,price_new" + (",clicked" if labelled else "")]
    for i in range(first, first + rows):
        age = draw.choice(["", "NA", *range(18, 80)])
        city = draw.choice(["Bonn", "Kiel", '"Halle, ""Saale"""', ""])
        clicked = int(city != "Bonn" and age not in ("", "NA") and age > 40)
        line = f"{i},{age},{draw.uniform(0, 1e4):.2f},{city},{draw.randint(-3, 9)}"
        lines.append(f"{line},{clicked}" if labelled else line)
    return "\n".join(lines) + "\n"


class Tables(PredictTest):
    def prepare(self):
        (self.folder / "ads.csv").write_text(table(600))

    def prepare_ads(self, output, *options, inputs=("ads.csv",), schema=SCHEMA):
        return self.succeed("data", "prepare", "--format", "csv", "--input", *inputs, *schema, "--missing-text", "NA",
                            "--missing", "mean", "--validation", 0.25, "--output", output, *options)

    def records(self, folder):
        return {name: (self.folder / folder / name).read_bytes() for name in ("train.bin", "validation.bin", "dictionary.txt")}

    def test_a_model_is_trained_and_predicts_unlabelled_rows(self):
        output = self.prepare_ads("data/clicks")
        self.assertIn("columns numbers by transform: log 2, standard 1; missing: mean; 1 dropped", output)
        schema = json.loads((self.folder / "data/clicks/features.json").read_text())
        self.assertEqual((schema["version"], schema["dense"]), (3, ["age", "price_old", "price_new"]))
        self.assertEqual([each["transform"] for each in schema["csv"]["numbers"]], ["standard", "log", "log"])
        self.assertEqual(schema["training_samples"] + schema["validation_samples"], 600)
        (self.folder / "clicks.toml").write_text(CLICKS)
        self.succeed("train", "clicks.toml", "--train.steps=60", "--train.evaluate_interval=60", "--checkpoint.interval=60",
                     f"--train.evaluate_sequences={schema['validation_samples']}")
        self.assertGreater(self.metrics()[-1]["validation_auc"], 0.75)
        (self.folder / "new.csv").write_text(table(50, seed=1, first=0, labelled=False))
        (self.folder / "labelled.csv.gz").write_bytes(gzip.compress(table(50).encode()))
        answers, labelled = self.predict("run", "new.csv"), self.predict("run", "labelled.csv.gz")
        self.assertEqual([each["row"] for each in answers], list(range(1, 51)))
        self.assertEqual(len(labelled), 50)
        # Columns in another order, without the dropped one.
        lines = [line.split(",") for line in table(50, seed=4, labelled=False).splitlines() if '"' not in line]
        one, two = (self.folder / name for name in ("one.csv", "two.csv"))
        one.write_text("\n".join(",".join(line) for line in lines) + "\n")
        two.write_text("\n".join(",".join(line[i] for i in (3, 4, 1, 2)) for line in lines) + "\n")
        for a, b in zip(self.predict("run", "one.csv"), self.predict("run", "two.csv"), strict=True):
            self.assertEqual(a["probability"], b["probability"])
        (self.folder / "foreign.csv").write_text("age,price_old,city,price_new,zip\n1,2,Bonn,3,4\n")
        (self.folder / "lacking.csv").write_text("age,price_old,city\n1,2,Bonn\n")
        (self.folder / "word.csv").write_text("age,price_old,city,price_new\n1,2,Bonn,3\n1,2,Bonn,cheap\n")
        for name, words in [("foreign.csv", ["foreign.csv:1", "column 5 (zip)", "unknown"]),
                            ("lacking.csv", ["lacking.csv:1", '"price_new"']),
                            ("word.csv", ["word.csv:3", "column 4 (price_new)", '"cheap"', "finite number"])]:
            self.fail_with(USER, words, "predict", "run", name, "--output", "out")
            self.assertFalse((self.folder / "out").exists())

    def test_compressed_and_several_files_have_the_same_records(self):
        text = (self.folder / "ads.csv").read_text()
        head, rows = text.split("\n", 1)
        middle = rows.index("\n", len(rows) // 2) + 1
        (self.folder / "one.csv.gz").write_bytes(gzip.compress(f"{head}\n{rows[:middle]}".encode()))
        (self.folder / "two.csv.zst").write_bytes(zstd_of(f"{head}\n{rows[middle:]}".encode()))
        self.prepare_ads("whole")
        self.prepare_ads("parts", inputs=("one.csv.gz", "two.csv.zst"))
        self.prepare_ads("hash", "--ids", "hash")
        self.assertEqual(self.records("whole"), self.records("parts"))
        hashed = json.loads((self.folder / "hash/features.json").read_text())
        self.assertEqual(hashed["tables"][0]["ids"], "hash")
        # New data by the schema of the old: its columns need not be named again.
        self.succeed("data", "prepare", "--format", "csv", "--input", "two.csv.zst", "--dictionary", "whole",
                     "--validation", 0, "--output", "new")
        old, new = (json.loads((self.folder / name / "features.json").read_text()) for name in ("whole", "new"))
        self.assertEqual((old["csv"], old["tables"]), (new["csv"], new["tables"]))

    def test_mistakes_cost_one_line_and_leave_nothing(self):
        (self.folder / "word.csv").write_text(table(5) + "9,old,1,Bonn,2,1\n")
        (self.folder / "label.csv").write_text(table(5) + "9,1,1,Bonn,2,2\n")
        (self.folder / "short.csv").write_text(table(5) + "9,1,1\n")
        (self.folder / "open.csv").write_text(table(5) + '9,1,1,"Bonn,2,1\n')
        (self.folder / "other.csv").write_text("age\n1\n")
        (self.folder / "empty.csv").write_text("")
        for inputs, options, words in [
                (["word.csv"], SCHEMA, ["word.csv:7: column 2 (age)", '"old"', "finite number"]),
                (["label.csv"], SCHEMA, ["label.csv:7: column 6 (clicked)", '"2"', "0 or 1"]),
                (["short.csv"], SCHEMA, ["short.csv:7 has 3 cells; expected 6"]),
                (["open.csv"], SCHEMA, ["open.csv:7", "quote is not closed"]),
                (["ads.csv", "other.csv"], SCHEMA, ["other.csv:1 has no column", "price_old"]),
                (["empty.csv"], SCHEMA, ["empty.csv is empty"]), (["none.csv"], SCHEMA, ["none.csv"]),
                (["ads.csv"], SCHEMA[:-2], ["column 1 (id) is in no list", "--drop"]),
                (["ads.csv"], [*SCHEMA, "--category", "town"], ["no column for --category town"]),
                (["ads.csv"], [*SCHEMA, "--drop", "price_*"], ["column 3 (price_old) is both"]),
                (["ads.csv"], SCHEMA[:4], ["--label"]),
                (["ads.csv"], [*SCHEMA, "--transform", "cube"], ["--transform", "standard"]),
                (["ads.csv"], [*SCHEMA, "--dictionary", "ads"], ["--numeric is that of --dictionary"])]:
            with self.subTest(words=words):
                self.fail_with(USER, words, "data", "prepare", "--format", "csv", "--input", *inputs, *options,
                               *([] if "--dictionary" in options else ["--missing-text", "NA"]), "--output", "new")
                self.assertFalse((self.folder / "new").exists())
        self.fail_with(USER, ["--numeric is not an option of --format criteo"], "data", "prepare", "--format", "criteo",
                       "--input", "ads.csv", "--numeric", "age", "--output", "new")

    def test_a_preparation_that_was_killed_starts_over(self):
        (self.folder / "large.csv").write_text(table(200_000))
        process = self.start("data", "prepare", "--format", "csv", "--input", "large.csv", *SCHEMA, "--missing-text", "NA",
                             "--missing", "mean", "--validation", 0.25, "--output", "killed")
        while not list(self.folder.glob(".killed*")):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertFalse((self.folder / "killed").exists())
        self.prepare_ads("killed", inputs=("large.csv",))
        self.prepare_ads("whole", inputs=("large.csv",))
        self.assertEqual(self.records("killed"), self.records("whole"))
        self.assertEqual(list(self.folder.glob(".killed*")), [])


if __name__ == "__main__":
    unittest.main()
