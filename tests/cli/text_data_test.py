"""`trireme data prepare --format json-lines`: the rows' texts, as another reader finds them, or one line that says why not."""
import gzip
import json
import random
import signal
import time
import unittest

from program import ProgramTest, documents, zstd_of

USER = 2
PREPARE = ["data", "prepare", "--format", "json-lines"]


class TextData(ProgramTest):
    def prepare(self):
        """No text: only rows."""
        draw = random.Random(1)
        self.texts = ["".join(draw.choice("ab \n\"\\ü€") for _ in range(draw.randrange(1, 400))) for _ in range(500)]
        self.rows = "".join(json.dumps({"id": i, "data": {"text": text}}, ensure_ascii=i % 2 == 0) + "\n"
                            for i, text in enumerate(self.texts)).encode()

    def test_rows_become_documents_however_they_are_stored(self):
        middle = len(self.rows) // 2
        files = {"a.jsonl": self.rows, "b.json.gz": gzip.compress(self.rows[:middle]) + gzip.compress(self.rows[middle:]),
                 "c.jsonl.zst": zstd_of(self.rows[:middle]) + zstd_of(self.rows[middle:])}
        for name, content in files.items():
            folder = self.folder / name[0]
            folder.mkdir()
            (folder / name).write_bytes(content)
            report = json.loads(self.succeed(*PREPARE, "--input", name[0], "--text-key", "data.text", "--validation", 0.1,
                                             "--output", f"out/{name[0]}", "--json"))
            training, validation = documents(folder / f"../out/{name[0]}"), documents(
                folder / f"../out/{name[0]}.validation")
            self.assertEqual(sorted(training + validation), sorted(self.texts))
            self.assertEqual(training, [text for text in self.texts if text in set(training)])
            self.assertEqual((report["documents"], report["validation_documents"]), (len(training), len(validation)))
            self.assertEqual(report["bytes_read"], len(content))
            self.assertEqual(report["text_bytes"], sum(len(text.encode()) for text in self.texts))
        for suffix in (".bin", ".idx", ".validation.bin"):
            plain, packed, other = ((self.folder / f"out/{name}{suffix}").read_bytes() for name in "abc")
            self.assertEqual(packed, plain)
            self.assertEqual(other, plain)

    def test_what_cannot_be_used_is_one_line(self):
        (self.folder / "rows.jsonl").write_bytes(self.rows)
        self.fail_with(USER, ["rows.jsonl looks like JSON lines", "--format json-lines"],
                       "data", "prepare", "--input", "rows.jsonl", "--output", "out/x")
        self.fail_with(USER, ["--text-key is not an option of --format tokens"],
                       "data", "prepare", "--input", "rows.jsonl", "--text-key", "data.text", "--output", "out/x")
        rows = [*PREPARE, "--input", "rows.jsonl", "--output", "out/x"]
        self.fail_with(USER, ['rows.jsonl:1 has no "text" but "data", "id"', "--text-key", "--skip-bad-rows"], *rows)
        self.fail_with(USER, ['--text-key is "data."'], *rows, "--text-key", "data.")
        self.fail_with(USER, ["--as-text is not an option of --format json-lines"], *rows, "--as-text")
        lines = self.rows.splitlines(keepends=True)
        lines[6] = b'{"data": {"text": null}}\n'
        lines[400] = b'{"data": {"text": "\xff"}}\n'
        (self.folder / "rows.jsonl").write_bytes(b"".join(lines))
        rows += ["--text-key", "data.text"]
        self.fail_with(USER, ['rows.jsonl:7: "data.text" is null', "--skip-bad-rows"], *rows, "--threads", 3)
        self.assertFalse((self.folder / "out/x.bin").exists())
        shown = self.succeed(*rows, "--skip-bad-rows", "--validation", 0)
        self.assertIn("2 rows cannot be used and were left out; the first: rows.jsonl:7", shown)
        self.assertEqual(documents(self.folder / "out/x"),
                         [text for i, text in enumerate(self.texts) if i not in (6, 400)])
        (self.folder / "rows.jsonl").write_bytes(zstd_of(self.rows)[:-40])
        self.fail_with(USER, ["rows.jsonl ends in the middle"], *rows, "--skip-bad-rows")

    def test_repeated_texts_are_left_out(self):
        (self.folder / "a.jsonl").write_bytes(self.rows)
        (self.folder / "b.jsonl").write_bytes(self.rows[:self.rows.index(b"\n", 9000) + 1])
        count = len(set(self.texts))
        reports = [json.loads(self.succeed(*PREPARE, "--input", *order, "--text-key", "data.text", "--dedupe", "--validation",
                                           0.1, "--threads", threads, "--output", f"out/{threads}", "--json"))
                   for threads, order in ((1, "a.jsonl b.jsonl".split()), (3, "b.jsonl a.jsonl".split()))]
        for report in reports:
            self.assertEqual(report["documents"] + report["validation_documents"], count)
            self.assertGreater(report["duplicates"], 0)
        self.assertEqual(reports[0]["duplicates"], reports[1]["duplicates"])
        for suffix in ("", ".validation"):
            one, three = (sorted(documents(self.folder / f"out/{threads}{suffix}")) for threads in (1, 3))
            self.assertEqual(one, three)
        (self.folder / "files").mkdir()
        for i, text in enumerate(["one", "two", "one", "three"]):
            (self.folder / f"files/{i}.txt").write_text(text)
        shown = self.succeed("data", "prepare", "--input", "files", "--dedupe", "--split", "text", "--output", "out/f")
        self.assertIn("1 documents have a text that came before", shown)
        self.assertEqual(sorted(documents(self.folder / "out/f") + documents(self.folder / "out/f.validation")),
                         ["one", "three", "two"])
        self.fail_with(USER, ["--split is not an option of --format json-lines"], *PREPARE, "--input", "a.jsonl",
                       "--split", "name", "--output", "out/x")

    def test_a_killed_preparation_goes_on_with_the_same_bytes(self):
        (self.folder / "rows.jsonl").write_bytes(self.rows * 700)
        rows = [*PREPARE, "--input", "rows.jsonl", "--text-key", "data.text"]
        self.succeed(*rows, "--output", "out/whole")
        process = self.start(*rows, "--output", "out/x")
        work = self.folder / "out/.x.tmp"
        while not list(work.glob("*/journal.json")):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.fail_with(USER, ["nothing does not exist"], "data", "prepare", "--input", "nothing", "--output", "out/x")
        self.assertTrue(list(work.glob("*/journal.json")))
        report = json.loads(self.succeed(*rows, "--output", "out/x", "--threads", 3, "--json"))
        self.assertGreaterEqual(report["resumed_bytes"], 64 << 20)
        for suffix in (".bin", ".idx", ".validation.bin", ".validation.idx"):
            self.assertEqual((self.folder / f"out/x{suffix}").read_bytes(), (self.folder / f"out/whole{suffix}").read_bytes())
        self.assertFalse(work.exists())

    def test_a_killed_preparation_leaves_the_old_files_and_goes_through_again(self):
        (self.folder / "rows.jsonl").write_bytes(self.rows)
        rows = [*PREPARE, "--input", "rows.jsonl", "--text-key", "data.text", "--output", "out/x"]
        self.succeed(*rows)
        before = (self.folder / "out/x.bin").read_bytes()
        (self.folder / "rows.jsonl").write_bytes(self.rows * 300)
        process = self.start(*rows)
        while not list((self.folder / "out").glob(".x.tmp/*/training.bin")):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual((self.folder / "out/x.bin").read_bytes(), before)
        (self.folder / "rows.jsonl").write_bytes(self.rows)
        self.succeed(*rows)
        self.assertEqual((self.folder / "out/x.bin").read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
