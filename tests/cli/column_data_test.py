"""`trireme data prepare --format parquet` and `arrow`: the texts that pyarrow wrote, or one line that says why not."""
import json
import random
import unittest

import pyarrow
import pyarrow.feather
import pyarrow.parquet

from program import ProgramTest, documents

USER = 2


class ColumnData(ProgramTest):
    def prepare(self):
        """No text: only rows."""
        draw = random.Random(1)
        self.texts = ["".join(draw.choice("ab \n\"\\ü€") for _ in range(draw.randrange(1, 400))) for _ in range(2000)]
        self.table = pyarrow.table({"id": list(range(len(self.texts))), "text": self.texts})

    def data(self, form, *inputs, output="out/x", **options):
        words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
        return ["data", "prepare", "--format", form, "--input", *inputs, "--output", output, *words]

    def write_stream(self, name, table):
        with pyarrow.OSFile(str(self.folder / name), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=300)

    def test_the_tokens_are_those_of_json_lines(self):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in self.texts)
        (self.folder / "rows.jsonl").write_text(rows)
        self.succeed(*self.data("json-lines", "rows.jsonl", output="out/lines", validation=0.1))
        write = pyarrow.parquet.write_table
        write(self.table, self.folder / "plain.parquet", row_group_size=700)
        write(self.table, self.folder / "packed.parquet", compression="zstd", use_dictionary=False, data_page_size=5000,
              data_page_version="2.0", write_page_checksum=True)
        large = self.table.set_column(1, "text", self.table["text"].cast(pyarrow.large_string()))
        write(large, self.folder / "large.parquet", compression="gzip")
        words = self.table.set_column(1, "text", self.table["text"].dictionary_encode())
        write(words, self.folder / "words.parquet", compression="lz4")
        write(self.table, self.folder / "delta.parquet", use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"},
              data_page_size=3000)
        inner = pyarrow.StructArray.from_arrays([pyarrow.array(self.texts)], ["text"])
        write(pyarrow.table({"text": [1] * len(self.texts), "data": inner}), self.folder / "inner.parquet")
        inner = pyarrow.StructArray.from_arrays([pyarrow.array(self.texts).dictionary_encode()], ["text"])
        write(pyarrow.table({"data": inner}), self.folder / "words_inside.parquet", row_group_size=700)
        pyarrow.feather.write_feather(self.table, str(self.folder / "rows.feather"), chunksize=500)
        self.write_stream("rows.arrow", words)
        for name in ("plain", "packed", "large", "delta", "words", "inner", "words_inside", "rows.feather", "rows.arrow"):
            form, file = ("arrow", name) if name.startswith("rows") else ("parquet", f"{name}.parquet")
            with self.subTest(file):
                key = "data.text" if name.endswith(("inner", "inside")) else "text"
                report = json.loads(self.succeed(*self.data(form, file, output=f"out/{name}", validation=0.1, text_key=key,
                                                            threads=3 if name == "large" else 1), "--json"))
                self.assertEqual(report["bytes_read"], (self.folder / file).stat().st_size)
                for suffix in (".bin", ".idx", ".validation.bin", ".validation.idx"):
                    self.assertEqual((self.folder / f"out/{name}{suffix}").read_bytes(),
                                     (self.folder / f"out/lines{suffix}").read_bytes())

    def test_folders_several_files_and_repeated_texts(self):
        (self.folder / "in").mkdir()
        for i, name in enumerate(("b", "a")):
            pyarrow.parquet.write_table(self.table.slice(900 * i, 1100), self.folder / f"in/{name}.parquet")
        (self.folder / "in/README.md").write_text("not a row")
        shown = self.succeed(*self.data("parquet", "in", validation=0), "--dedupe")
        order = dict.fromkeys(self.texts[900:2000] + self.texts[:1100])
        self.assertEqual(documents(self.folder / "out/x"), list(order))
        self.assertIn(f"{2200 - len(order)} documents have a text that came before", shown)

    def test_what_cannot_be_used_is_one_line(self):
        file = self.folder / "rows.parquet"
        pyarrow.parquet.write_table(self.table, file, compression="none", use_dictionary=False)
        whole = file.read_bytes()
        rows = self.data("parquet", "rows.parquet")
        self.fail_with(USER, ["rows.parquet is a Parquet file", "--format parquet"],
                       "data", "prepare", "--input", "rows.parquet", "--output", "out/x")
        self.fail_with(USER, ['rows.parquet has no column "body" but "id", "text"', "--text-key"], *rows, "--text-key", "body")
        self.fail_with(USER, ['column "id" has values of type int64; expected texts', "--text-key"], *rows, "--text-key", "id")
        self.fail_with(USER, ["rows.parquet is a Parquet file", "--format parquet"], *self.data("arrow", "rows.parquet"))
        file.write_bytes(whole[:-100])
        self.fail_with(USER, ["rows.parquet: ", "corrupted"], *rows)
        file.write_bytes(b"PAR1")
        self.fail_with(USER, ["rows.parquet: "], *rows)
        (self.folder / "x.parquet").write_text("hello")
        self.fail_with(USER, ["x.parquet is no Parquet file"], *self.data("parquet", "x.parquet"))
        (self.folder / "x.arrow").write_text("hello")
        self.fail_with(USER, ["x.arrow is no Arrow file"], *self.data("arrow", "x.arrow"))
        pyarrow.parquet.write_table(self.table, file, write_page_checksum=True)
        damaged = bytearray(file.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        file.write_bytes(damaged)
        self.fail_with(USER, ["rows.parquet is damaged", "behind row"], *rows, "--skip-bad-rows")
        self.assertFalse((self.folder / "out/x.bin").exists())

    def test_rows_without_a_text_are_left_out_if_asked(self):
        values = [text.encode() for text in self.texts]
        values[6], values[400] = None, b"\xff"
        pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array(values, pyarrow.binary())}),
                                    self.folder / "rows.parquet")
        rows = self.data("parquet", "rows.parquet", validation=0)
        self.fail_with(USER, ['rows.parquet, row 7: "text" is null', "--skip-bad-rows"], *rows, "--threads", 3)
        shown = self.succeed(*rows, "--skip-bad-rows")
        self.assertIn("2 rows cannot be used and were left out; the first: rows.parquet, row 7", shown)
        self.assertEqual(documents(self.folder / "out/x"), [text for i, text in enumerate(self.texts) if i not in (6, 400)])

    def test_nulls_on_the_way_to_a_text_are_rows_without_one(self):
        rows = [None if i % 5 == 3 else {"text": None if i % 7 == 2 else text, "id": i} for i, text in enumerate(self.texts)]
        pyarrow.parquet.write_table(pyarrow.table({"data": rows}), self.folder / "rows.parquet", data_page_size=2000,
                                    row_group_size=900)
        shown = self.succeed(*self.data("parquet", "rows.parquet", validation=0, text_key="data.text"), "--skip-bad-rows")
        texts = [row["text"] for row in rows if row and row["text"] is not None]
        self.assertIn(f"{len(rows) - len(texts)} rows cannot be used and were left out; the first: rows.parquet, row 3", shown)
        self.assertEqual(documents(self.folder / "out/x"), texts)


if __name__ == "__main__":
    unittest.main()
