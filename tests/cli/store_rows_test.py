"""`trireme data prepare` from an object store: the files that copies on a disk give, whatever the store does."""
import gzip
import json
import signal
import time
import unittest

from program import ProgramTest, write_text
from store_server import StoreServer

USER, PEER = 2, 3
SUFFIXES = (".bin", ".idx", ".validation.bin", ".validation.idx")
FAULTS = ["503", None, "close", None, "half", None, None, "slow", None]


class StoreRows(ProgramTest):
    def prepare(self):
        """Text, and rows of JSON, compressed too."""
        write_text(self.folder / "text")
        (self.folder / "rows").mkdir()
        rows = [json.dumps({"text": f"row {i} " + "word " * (i % 50)}) for i in range(4000)]
        (self.folder / "rows/a.jsonl.gz").write_bytes(gzip.compress("\n".join(rows[:3000]).encode()))
        (self.folder / "rows/b.jsonl").write_text("\n".join(rows[3000:]))
        (self.folder / "rows/README.md").write_text("no row")
        (self.folder / "rows/d e").mkdir()
        (self.folder / "rows/d e/+50% ?#@ü.jsonl").write_text("\n".join(rows[:100]))

    def serve(self, **options):
        server = StoreServer(self.folder, **options)
        self.addCleanup(server.stop)
        return server

    def data(self, form, *inputs, output="out/store", validation=0.1):
        return ["data", "prepare", "--format", form, "--input", *inputs, "--validation", validation, "--output", output]

    def assert_same_files(self, one="out/store", other="out/disk"):
        for suffix in SUFFIXES:
            self.assertEqual((self.folder / f"{one}{suffix}").read_bytes(), (self.folder / f"{other}{suffix}").read_bytes())

    def test_files_and_folders_are_those_of_a_disk_whatever_the_store_does(self):
        for fault in (lambda number: None, lambda number: FAULTS[number % len(FAULTS)]):
            server = self.serve(fault=fault)
            for form, names in (("tokens", ["text/"]), ("json-lines", ["rows/"]), ("json-lines", ["rows/b.jsonl"])):
                with self.subTest(form=form, names=names):
                    self.succeed(*self.data(form, *names, output="out/disk"))
                    urls = [f"s3://data/{name}" for name in names]
                    self.succeed(*self.data(form, *urls), environment=server.environment())
                    self.assert_same_files()

    def test_a_web_server_gives_single_files(self):
        server = self.serve(keys=False)
        self.succeed(*self.data("json-lines", "rows/a.jsonl.gz", output="out/disk"))
        self.succeed(*self.data("json-lines", f"{server.url}/data/rows/a.jsonl.gz"))
        self.assert_same_files()
        for name, url in (("a b+é.jsonl", "a b+é.jsonl"), ("50%#?.jsonl", "50%25%23%3F.jsonl")):
            (self.folder / "rows/b.jsonl").rename(self.folder / "rows" / name)
            self.succeed(*self.data("json-lines", f"rows/{name}", output="out/disk"))
            self.succeed(*self.data("json-lines", f"{server.url}/data/rows/{url}"))
            self.assert_same_files()
            (self.folder / "rows" / name).rename(self.folder / "rows/b.jsonl")
        self.fail_with(USER, ["cannot list http://127.0.0.1", "a web server does not tell what it has", "name each file"],
                       *self.data("json-lines", f"{server.url}/data/rows/"))

    def test_a_killed_preparation_goes_on_from_the_store(self):
        rows = (self.folder / "rows/b.jsonl").read_bytes() + b"\n"
        many = rows * ((160 << 20) // len(rows))
        (self.folder / "many.jsonl.gz").write_bytes(gzip.compress(many, 1))
        self.succeed(*self.data("json-lines", "many.jsonl.gz", output="out/disk"))
        server = self.serve()
        command = self.data("json-lines", "s3://data/many.jsonl.gz")
        process = self.start(*command, environment=server.environment())
        work = self.folder / "out/.store.tmp"
        while not list(work.glob("*/journal.json")):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        report = json.loads(self.succeed(*command, "--json", environment=server.environment()))
        self.assertGreaterEqual(report["resumed_bytes"], 64 << 20)
        self.assert_same_files()
        self.assertFalse(work.exists())

    def test_an_object_that_changes_or_goes_ends_it_with_one_line(self):
        rows = (self.folder / "rows/b.jsonl").read_bytes() + b"\n"
        path = self.folder / "many.jsonl"
        for words in ("has changed since it was opened", "is gone since it was opened"):
            path.write_bytes(rows * ((40 << 20) // len(rows)))
            seen = []

            def fault(number, seen=seen, words=words):
                seen.append(number)
                if len(seen) == 6:
                    if "gone" in words:
                        path.unlink()
                    else:
                        path.write_bytes(rows)

            server = self.serve(fault=fault)
            self.fail_with(USER, ["s3://data/many.jsonl " + words], *self.data("json-lines", "s3://data/many.jsonl", validation=0),
                           environment=server.environment())
            self.assertFalse((self.folder / "out/store.bin").exists())

    def test_what_cannot_be_read_is_one_line(self):
        server = self.serve()
        right = server.environment()
        wrong = {**right, "AWS_SECRET_ACCESS_KEY": "another"}
        file, folder = (self.data("json-lines", f"s3://data/{name}") for name in ("rows/b.jsonl", "rows/"))
        self.fail_with(USER, ["cannot read s3://data/rows/b.jsonl: the store refuses", "403"], *file, environment=wrong)
        self.fail_with(USER, ["cannot list s3://data/rows/: the store refuses", "403"], *folder, environment=wrong)
        self.fail_with(USER, ["input s3://data/rows/c.jsonl does not exist", '"/" at its end'],
                       *self.data("json-lines", "s3://data/rows/c.jsonl"), environment=right)
        self.fail_with(USER, ["no text found: s3://data/none/"], *self.data("json-lines", "s3://data/none/"), environment=right)
        self.fail_with(USER, ["begins with ftp://"], *self.data("tokens", "ftp://host/x"))
        self.fail_with(USER, ["a URL with a user name, a query or a fragment"], *self.data("tokens", "https://host/x?key=1"))
        whole = (self.folder / "rows/a.jsonl.gz").read_bytes()
        (self.folder / "rows/a.jsonl.gz").write_bytes(whole[:len(whole) // 2])
        self.fail_with(USER, ["s3://data/rows/a.jsonl.gz ends in the middle of its compressed text"],
                       *self.data("json-lines", "s3://data/rows/a.jsonl.gz"), environment=right)
        self.fail_with(USER, ["s3://data/rows/b.jsonl looks like JSON lines"], *self.data("tokens", "s3://data/rows/b.jsonl"),
                       environment=right)
        self.fail_with(USER, ["--format criteo reads files of this machine", "copy it"], "data", "prepare", "--format", "criteo",
                       "--input", "s3://data/day_0", "--output", "out/criteo")
        self.assertFalse((self.folder / "s3:").exists())


if __name__ == "__main__":
    unittest.main()
