"""`trireme data` for recommendation models: generated, prepared, and refused in one line."""
import json
import os
import struct
import unittest

from program import ProgramTest

USER = 2


class RecommendData(ProgramTest):
    def prepare(self):
        """No text: only tables."""

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def schema(self, folder):
        return json.loads((self.folder / folder / "features.json").read_text())

    def test_generated_data_are_prepared(self):
        output = self.succeed("data", "generate", "--samples", 2000, "--scale", 0.001, "--seed", 5,
                              "--output", "day_0.tsv")
        self.assertRegex(output, r"best    AUC 0\.[6-9]\d+ on these labels \(0\.[6-9]\d+ expected\)")
        output = self.succeed("data", "prepare", "--format", "criteo", "--input", "day_0.tsv", "--min-count", 3,
                              "--validation", 0.1, "--output", "data/criteo")
        self.assertIn("tables  26", output)
        schema = self.schema("data/criteo")
        self.assertEqual(schema["training_samples"] + schema["validation_samples"], 2000)
        self.assertEqual((self.folder / "data/criteo/train.bin").stat().st_size, 160 * schema["training_samples"])
        # New data with the same rows.
        self.succeed("data", "generate", "--samples", 100, "--scale", 0.001, "--seed", 6, "--output", "day_1.tsv")
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day_1.tsv", "--dictionary", "data/criteo",
                     "--validation", 0, "--output", "data/new")
        self.assertEqual(self.schema("data/new")["tables"], schema["tables"])
        self.assertEqual(self.schema("data/new")["training_samples"], 100)

    def test_a_record_is_where_the_docs_say(self):
        """docs/recommend-data.md, read by another program."""
        line = "1\t" + "\t".join(["0"] * 13) + "\t" + "\t".join(["ab"] * 25 + [""])
        self.write("day", line + "\n" + line.replace("ab", "cd") + "\n")
        self.succeed("data", "prepare", "--format", "criteo", "--input", "day", "--validation", 0, "--output", "new")
        records = (self.folder / "new/train.bin").read_bytes()
        self.assertEqual(struct.unpack("<f13f26I", records[:160]), (1.0,) + (0.0,) * 13 + (1,) * 26)
        self.assertEqual(struct.unpack("<f13f26I", records[160:]), (1.0,) + (0.0,) * 13 + (2,) * 25 + (1,))
        self.write("pairs", "query*\titem\titem.tags*\na|b\tx\tt\n\tx\t\nb\ty\tt|u\n")
        self.succeed("data", "prepare", "--format", "pairs", "--input", "pairs", "--validation", 0, "--output", "two")
        records = (self.folder / "two/train.bin").read_bytes()
        self.assertEqual([struct.unpack_from("<III2H", records, 16 * i) for i in range(3)],
                         [(0, 1, 2, 2, 0), (0, 0, 0, 0, 0), (1, 2, 0, 1, 0)])
        items = (self.folder / "two/items.bin").read_bytes()
        self.assertEqual([struct.unpack_from("<III2H", items, 16 * i) for i in range(2)],
                         [(1, 1, 0, 1, 0), (2, 1, 2, 2, 0)])

    def test_bad_input(self):
        prepare = ["data", "prepare", "--validation", "0", "--output", "new", "--format"]
        line = "1\t" + "\t".join(["0"] * 13 + ["ab"] * 26) + "\n"
        for text, expected in [("", ["day is empty"]), (line + "1\t2\n", ["day:2", "2 columns", "40"]),
                               (line.replace("ab", "xy", 1), ["day:1: column 15 (C1)", '"xy"', "hexadecimal"]),
                               (line.replace("0", "nan", 1), ["day:1: column 2 (I1)", '"nan"', "finite"]),
                               ("2" + line[1:], ["day:1: column 1 (label)", "0 or 1"])]:
            self.write("day", text)
            self.fail_with(USER, expected, *prepare, "criteo", "--input", "day")
        self.write("day", "x")
        self.fail_with(USER, ["1 bytes", "160"], *prepare, "criteo-binary", "--input", "day")
        self.fail_with(USER, ["day:1", "query"], *prepare, "pairs", "--input", "day")
        self.fail_with(USER, ["day:1", "Package"], *prepare, "debian", "--input", "day")
        self.fail_with(USER, ["nowhere"], *prepare, "criteo", "--input", "nowhere")
        self.fail_with(USER, ["nowhere"], *prepare, "criteo", "--input", "day", "--dictionary", "nowhere")
        self.fail_with(USER, ["--tokenizer", "--format criteo"], *prepare, "criteo", "--input", "day",
                       "--tokenizer", "bpe")
        self.fail_with(USER, ["--min-count", "--format tokens"], *prepare, "tokens", "--input", "day",
                       "--min-count", 2)
        self.fail_with(USER, ["--min-count", "--dictionary"], *prepare, "criteo", "--input", "day",
                       "--dictionary", "x", "--min-count", 2)
        self.fail_with(USER, ["--format", "words"], *prepare, "words", "--input", "day")
        self.fail_with(USER, ["/dev/null/day"], "data", "generate", "--samples", 1, "--output", "/dev/null/day")
        self.assertEqual(sorted(os.listdir(self.folder)), ["day", "tmp"])


if __name__ == "__main__":
    unittest.main()
