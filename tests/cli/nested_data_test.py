"""Conversations, pairs and labelled texts in Parquet and Arrow files: the files that the same rows give as JSON lines."""
import json
import unittest

import pyarrow
import pyarrow.feather
import pyarrow.parquet

from chat_data_test import ChatTest
from classification_test import ROWS, ClassifierTest
from preference_test import assistant, pair, user

USER = 2
TALKS = [{"messages": [user(f"How is it, {i}?"), assistant("It is \"fine\".\n\ttoday \u00fc\u20ac")]} for i in range(400)]
PAIRS = [pair(f"Is it {i}?", "It is fine.", "No.") for i in range(60)]
TEXTS = [{"prompt": f"The weather {i} is", "chosen": " fine, it is.", "rejected": " you."} for i in range(60)]


class NestedTest:
    """For a test with rows.jsonl and out/: the same rows in files of columns."""
    def write_rows(self, rows):
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        table = pyarrow.Table.from_pylist(rows).append_column("other", pyarrow.array(range(len(rows))))
        pyarrow.parquet.write_table(table, self.folder / "rows.parquet", row_group_size=150)
        pyarrow.feather.write_feather(table, str(self.folder / "rows.feather"), chunksize=70)
        return table

    def data(self, form, name, output):
        return ["data", "prepare", "--format", form, "--input", name, "--tokenizer-model", "hf", "--validation", 0.2,
                "--output", output]

    def assert_same_files(self, form, suffixes):
        self.succeed(*self.data(form, "rows.jsonl", "out/lines"))
        for name in ("rows.parquet", "rows.feather"):
            self.succeed(*self.data(form, name, "out/columns"))
            for suffix in suffixes:
                for part in ("", ".validation"):
                    one, other = (self.folder / f"out/{kind}{part}{suffix}" for kind in ("columns", "lines"))
                    self.assertEqual(one.read_bytes(), other.read_bytes(), (name, part, suffix))


class NestedChat(NestedTest, ChatTest):
    def test_conversations_and_pairs_are_those_of_json_lines(self):
        for form, rows in (("chat", TALKS), ("preference", PAIRS), ("preference", TEXTS)):
            with self.subTest(form, row=rows[0]):
                self.write_rows(rows)
                self.assert_same_files(form, (".bin", ".idx", ".loss.bin", ".loss.idx"))

    def test_roles_may_be_codes_of_a_dictionary_and_members_null(self):
        rows = [{"messages": [{**user("Hi"), "name": None}, {**assistant("It is fine."), "name": "A"}], "tools": None}] * 9
        table = self.write_rows(rows)
        parts = table["messages"].combine_chunks()
        roles = parts.values.field("role").dictionary_encode()
        messages = pyarrow.ListArray.from_arrays(parts.offsets, pyarrow.StructArray.from_arrays(
            [roles, parts.values.field("content"), parts.values.field("name")], ["role", "content", "name"]))
        pyarrow.feather.write_feather(pyarrow.table({"messages": messages}), str(self.folder / "rows.feather"))
        (self.folder / "rows.jsonl").write_text("".join(
            json.dumps({"messages": row["messages"]}) + "\n" for row in rows))
        self.assert_same_files("chat", (".bin", ".idx", ".loss.bin", ".loss.idx"))

    def test_a_folder_of_files_is_read(self):
        self.write_rows(TALKS)
        (self.folder / "in").mkdir()
        (self.folder / "rows.parquet").rename(self.folder / "in/a.parquet")
        (self.folder / "in/README.md").write_text("no row")
        shown = json.loads(self.succeed(*self.data("chat", "in", "out/folder"), "--json"))
        self.assertEqual(shown["conversations"] + shown["validation_conversations"], len(TALKS))

    def test_what_cannot_be_used_is_one_line(self):
        table = self.write_rows(TALKS)
        chat = self.data("chat", "rows.parquet", "out/x")
        write = pyarrow.parquet.write_table
        path = self.folder / "rows.parquet"
        write(table.rename_columns(["talk", "other"]), path)
        self.fail_with(USER, ['rows.parquet has none of the columns "messages", "conversations"', 'but "talk", "other"'], *chat)
        write(pyarrow.table({"messages": ["no list"] * 3}), path)
        self.fail_with(USER, ["rows.parquet, row 1: ", '"messages"'], *chat)
        write(pyarrow.table({"messages": pyarrow.array([1, 2], pyarrow.timestamp("s"))}), path)
        self.fail_with(USER, ['rows.parquet: column "messages" has values of type timestamp[ms]', "lists and structs"], *chat)
        broken = TALKS[:3] + [{"messages": [{"role": "wizard", "content": "x"}]}]
        write(pyarrow.Table.from_pylist(broken), path)
        self.fail_with(USER, ["rows.parquet, row 4: ", "wizard"], *chat)
        write(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 3] ^= 1
        path.write_bytes(damaged)
        self.fail_with(USER, ["rows.parquet is damaged: ", "behind row"], *chat)
        path.write_bytes(bytes(damaged)[:-50])
        self.fail_with(USER, ["rows.parquet: "], *chat)
        self.assertFalse((self.folder / "out/x.bin").exists())


class NestedLabels(NestedTest, ClassifierTest):
    def test_labelled_texts_are_those_of_json_lines(self):
        classes = sorted({row["label"] for row in ROWS})
        for rows in (ROWS * 9, [{**row, "label": classes.index(row["label"])} for row in ROWS * 9]):
            self.write_rows(rows)
            self.assert_same_files("labelled", (".bin", ".idx", ".label.bin", ".label.idx"))

    def test_a_label_that_is_no_class_is_one_line(self):
        self.write_rows([{"text": "a", "label": 0.5}, {"text": "b", "label": 1.0}])
        self.fail_with(USER, ["rows.parquet, row ", "the name of a class, or an integer"],
                       *self.data("labelled", "rows.parquet", "out/x"))


if __name__ == "__main__":
    unittest.main()
