"""Token files that others change under a run: a line that names the file, and exit code 2 on every layout."""
import os
import unittest

from program import TIMEOUT, ProgramTest

USER = 2
LAYOUTS = ([], ["--ranks=2"], ["--ranks=2", "--parallel.transport=gloo"], ["--ranks=2", "--parallel.pipeline=2"],
           ["--ranks=2", "--data.separate_documents=true"])


class ChangedData(ProgramTest):
    def setUp(self):
        super().setUp()
        self.bin, self.idx = self.folder / "data/tiny.bin", self.folder / "data/tiny.idx"
        self.whole = self.bin.read_bytes()

    def end_of_run(self, change, *overrides, expected):
        """What a run of many steps says when `change` happens after its first."""
        process = self.start_and_await_step("train", "tiny.toml", "--threads=1", "--train.steps=1000000",
                                    "--checkpoint.interval=1", "--checkpoint.keep=1", *overrides)
        change()
        _, line = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, USER, line)
        self.assertRegex(line, r"\Atrireme: [^\n]+\n\Z")
        for word in expected:
            self.assertIn(word, line)

    def test_cut_short(self):
        for number, layout in enumerate(LAYOUTS):
            with self.subTest(layout=layout):
                self.bin.write_bytes(self.whole)
                self.end_of_run(lambda: os.truncate(self.bin, 100), *layout, f"--output.folder=run-{number}",
                                expected=["data/tiny.bin", "it ends before byte", f"had {len(self.whole)} bytes"])
        # Whole again, the same command goes on.
        self.bin.write_bytes(self.whole)
        last = len(self.metrics("run-0"))
        self.succeed("train", "tiny.toml", "--ranks=2", f"--train.steps={last + 2}", "--output.folder=run-0")
        self.assertEqual([m["step"] for m in self.metrics("run-0")], list(range(1, last + 3)))

    def test_index_cut_short(self):
        self.end_of_run(lambda: os.truncate(self.idx, 40), "--ranks=2", "--data.separate_documents=true",
                        expected=["data/tiny.idx"])

    def test_overwritten(self):
        def overwrite():
            with open(self.bin, "r+b") as file:
                file.write(b"\xff" * len(self.whole))
        for layout in LAYOUTS[:2]:
            with self.subTest(layout=layout):
                self.bin.write_bytes(self.whole)
                self.end_of_run(overwrite, *layout, expected=["data/tiny.bin", "token 65535", "vocabulary of 257"])

    def test_replaced_by_another_file(self):
        """A run goes on with the file that it opened."""
        self.succeed("train", "tiny.toml", "--output.folder=plain")
        process = self.start_and_await_step("train", "tiny.toml", "--output.folder=replaced", "--train.steps=20")
        (self.folder / "other").write_bytes(b"\0" * len(self.whole))
        os.replace(self.folder / "other", self.bin)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertEqual(self.curve("replaced"), self.curve("plain"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
