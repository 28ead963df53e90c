"""`trireme data` for recommendation models: generated, prepared, and refused in one line."""
import gzip
import json
import os
import signal
import struct
import time
import unittest

import numpy

from program import ProgramTest, zstd_of

USER = 2


class RecommendData(ProgramTest):
    def prepare(self):
        """No text: only tables."""

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def schema(self, folder):
        return json.loads((self.folder / folder / "features.json").read_text())

    def test_json_has_what_was_written(self):
        made = json.loads(self.succeed("data", "generate", "--samples", 500, "--scale", 0.001, "--output", "day_0.tsv",
                                       "--json"))
        size = (self.folder / "day_0.tsv").stat().st_size
        self.assertEqual((made["samples"], made["bytes_written"]), (500, size))
        self.assertTrue(0 < made["positives"] < 500 and 0.5 < made["best_auc"] <= 1)
        prepared = json.loads(self.succeed("data", "prepare", "--format", "criteo", "--input", "day_0.tsv",
                                           "--validation", 0.1, "--output", "criteo", "--json"))
        schema = self.schema("criteo")
        for key in ("training_samples", "validation_samples"):
            self.assertEqual(prepared[key], schema[key])
        self.assertEqual([table["rows"] for table in prepared["tables"]], [table["rows"] for table in schema["tables"]])
        self.assertEqual((prepared["dense"], prepared["bytes_read"]), (13, size))
        hashed = json.loads(self.succeed("data", "prepare", "--format", "criteo", "--input", "day_0.tsv", "--ids", "hash",
                                         "--output", "hashed", "--json"))
        self.assertEqual([table["rows"] for table in hashed["tables"]], [None] * 26)

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

    def test_compressed_text_has_the_same_records(self):
        self.succeed("data", "generate", "--samples", 30_000, "--scale", 0.001, "--output", "day.tsv")
        text = (self.folder / "day.tsv").read_bytes()
        self.assertGreater(len(text), 4 << 20)
        middle = text.index(b"\n", len(text) // 2) - 9  # in a line
        two_parts = gzip.compress(text[:middle]) + gzip.compress(text[middle:])
        files = {"day.tsv": text, "one.tsv.gz": gzip.compress(text), "two.tsv.gz": two_parts, "day.tsv.zst": zstd_of(text)}
        prepare = ["data", "prepare", "--format", "criteo", "--validation", 0.1, "--output"]
        outcomes = []
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
            self.succeed(*prepare, name + "-out", "--input", name)
            outcomes.append([(self.folder / f"{name}-out" / part).read_bytes() for part in
                             ("train.bin", "validation.bin")])
        for outcome in outcomes[1:]:
            self.assertEqual(outcome, outcomes[0])
        packed = files["one.tsv.gz"]
        damaged = packed[:5000] + bytes([packed[5000] ^ 255]) + packed[5001:]
        for content, words in [(packed[:-40], ["cut.gz", "ends in the middle"]), (damaged, ["cut.gz", "damaged"]),
                               (packed[:20], ["cut.gz", "ends in the middle"]), (packed + b"rest", ["cut.gz", "damaged"]),
                               (gzip.compress(b""), ["cut.gz is empty"]), (b"BZh91AY", ["bzip2", "or use gzip or zstd"]),
                               (files["day.tsv.zst"][:-40], ["cut.gz", "ends in the middle"])]:
            (self.folder / "cut.gz").write_bytes(content)
            self.fail_with(USER, words, *prepare, "new", "--input", "cut.gz")

    def test_a_killed_preparation_goes_on_with_the_same_bytes(self):
        rows = "".join(f"{i % 97}.5,city{i % 1009},{i % 2}\n" for i in range(100_000))
        self.write("ads.csv", "age,city,clicked\n" + rows * (1 + (64 << 20) // len(rows)))
        prepare = ["data", "prepare", "--format", "csv", "--input", "ads.csv", "--numeric", "age:standard", "--category",
                   "city", "--label", "clicked", "--validation", 0.1]
        whole = json.loads(self.succeed(*prepare, "--output", "whole", "--json"))
        self.assertEqual((whole["resumed"], whole["resumed_samples"]), (False, 0))
        process = self.start(*prepare, "--output", "out")
        journal = self.folder / ".out.tmp/journal.json"
        while not journal.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertFalse((self.folder / "out").exists())
        report = json.loads(self.succeed(*prepare, "--output", "out", "--json"))
        self.assertTrue(report["resumed"])
        self.assertEqual(report["training_samples"], whole["training_samples"])
        for name in sorted(os.listdir(self.folder / "whole")):
            self.assertEqual((self.folder / "out" / name).read_bytes(), (self.folder / "whole" / name).read_bytes(), name)
        self.assertEqual(sorted(os.listdir(self.folder / "out")), sorted(os.listdir(self.folder / "whole")))
        self.assertFalse((self.folder / ".out.tmp").exists())

    def test_a_record_is_where_the_docs_say(self):
        """docs/design/feature-files.md, read by another program."""
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

    def test_arrays_are_prepared_as_the_text(self):
        """The same samples have the same bytes, so that models learn the same."""
        for form, name in (("criteo", "day_0.tsv"), ("criteo-numpy", "numpy/day_0")):
            self.succeed("data", "generate", "--format", form, "--samples", 2000, "--scale", 0.001, "--output", name)
            self.succeed("data", "prepare", "--format", form, "--input", name, "--min-count", 3, "--validation", 0.1,
                         "--output", f"data/{form}")
        self.assertEqual(sorted(os.listdir(self.folder / "numpy")), [f"day_0_{part}.npy" for part in ("dense", "labels", "sparse")])
        names = sorted(os.listdir(self.folder / "data/criteo"))
        self.assertEqual(names, ["dictionary.txt", "features.json", "train.bin", "validation.bin"])
        for name in names:
            self.assertEqual((self.folder / "data/criteo" / name).read_bytes(),
                             (self.folder / "data/criteo-numpy" / name).read_bytes(), name)

    def write_day(self, day, dtype="<i4", hotness=(1,) * 25 + (3,)):
        """Four samples, as NumPy writes them; sample i has the categories 10 (i + 1) + column."""
        dense = numpy.arange(4 * 13, dtype="<f4").reshape(4, 13)
        numpy.save(self.folder / f"{day}_dense.npy", dense)
        numpy.save(self.folder / f"{day}_labels.npy", numpy.array([[1], [0], [0], [1]], "<i4"))
        numpy.save(self.folder / f"{day}_sparse.npy", numpy.tile(10 * numpy.arange(1, 5, dtype=dtype)[:, None], 26))
        columns = {str(t): 10 * numpy.arange(1, 5, dtype="<i4")[:, None] + numpy.arange(n, dtype="<i4")
                   for t, n in enumerate(hotness)}
        numpy.savez(self.folder / f"{day}_sparse_multi_hot.npz", **columns)
        return columns

    def test_what_numpy_writes_is_read(self):
        for dtype in ("<i4", "<i8"):
            columns = self.write_day("day_0", dtype)
            for form in ("criteo-numpy", "criteo-multi-hot"):
                self.succeed("data", "prepare", "--format", form, "--input", "day_0", "day_0", "--validation", 0,
                             "--output", f"{form}{dtype[2]}")
            records = (self.folder / f"criteo-numpy{dtype[2]}/train.bin").read_bytes()
            for i in range(8):
                self.assertEqual(struct.unpack_from("<f13f26I", records, 160 * i),
                                 ((1, 0, 0, 1)[i % 4], *range(13 * (i % 4), 13 * (i % 4) + 13), *[i % 4 + 1] * 26))
        self.assertEqual(self.schema("criteo-multi-hot8")["tables"][25],
                         {"name": "C26", "rows": 13, "min_ids": 3, "max_ids": 3, "side": "query"})
        records = (self.folder / "criteo-multi-hot8/train.bin").read_bytes()
        self.assertEqual(len(records), 8 * 168)
        for i in range(8):
            ids = struct.unpack_from("<25I3I", records, 168 * i + 56)
            self.assertEqual(ids, (i % 4 + 1,) * 25 + tuple(3 * (i % 4) + k for k in (1, 2, 3)))
        numpy.savez_compressed(self.folder / "day_0_sparse_multi_hot.npz", **columns)
        prepare = ["data", "prepare", "--output", "new", "--format"]
        self.fail_with(USER, ["day_0_sparse_multi_hot.npz", '"0.npy" is compressed', "again with numpy.savez"], *prepare,
                       "criteo-multi-hot", "--input", "day_0")
        for part, array, expected in [
                ("dense", numpy.full((4, 13), numpy.nan, "<f4"), ["row 0, column 0 (I1) is nan"]),
                ("dense", numpy.zeros((4, 13)), ['"<f8"; expected <f4', 'astype("<f4")']),
                ("dense", numpy.zeros((13, 4), "<f4").T, ["Fortran", "ascontiguousarray"]),
                ("dense", numpy.zeros((4, 13), ">f4"), ['">f4"; expected <f4']),
                ("labels", numpy.zeros((5, 1), "<i4"), ["5 rows", "day_0_dense.npy 4"]),
                ("labels", numpy.full((4, 1), -1, "<i4"), ["row 0, column 0 (label) is -1", "Kaggle"]),
                ("sparse", numpy.full((4, 26), None), ['"|O"; expected <i4 or <i8']),
                ("sparse", numpy.full((4, 26), -5, "<i8"), ["row 0, column 0 (C1) is -5"]),
                ("sparse", numpy.full((4, 26), 1 << 32, "<i8"), ["column 0 (C1) is 4294967296"])]:
            self.write_day("day_0")
            numpy.save(self.folder / f"day_0_{part}.npy", array)
            self.fail_with(USER, [f"day_0_{part}.npy", *expected], *prepare, "criteo-numpy", "--input", "day_0")
        self.write_day("day_0")
        self.fail_with(USER, ["day_1_dense.npy"], *prepare, "criteo-numpy", "--input", "day_0", "day_1")
        self.fail_with(USER, ["day_0_dense.npy is one array", "begin with"], *prepare, "criteo-numpy", "--input",
                       "day_0_dense.npy")
        self.assertNotIn("new", os.listdir(self.folder))

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
        self.fail_with(USER, ["/dev/null: File exists", "--output"], "data", "generate", "--samples", 1, "--output", "/dev/null/day")
        self.assertEqual(sorted(os.listdir(self.folder)), ["day", "tmp"])


if __name__ == "__main__":
    unittest.main()
