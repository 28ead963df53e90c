"""`trireme data prepare` of Parquet and Arrow files in an object store: the files that copies on a disk give."""
import random
import unittest

import pyarrow
import pyarrow.feather
import pyarrow.parquet

from program import ProgramTest
from store_server import StoreServer

USER = 2
FAULTS = ["503", None, "close", None, "half", None]


class StoreColumns(ProgramTest):
    def prepare(self):
        """A column of texts beside one that is much larger."""
        draw = random.Random(1)
        count = 4000
        texts = [f"row {i} " + "word " * (i % 50) for i in range(count)]
        self.table = pyarrow.table({"text": texts, "noise": [draw.randbytes(5000) for _ in range(count)]})
        (self.folder / "in").mkdir()
        pyarrow.parquet.write_table(self.table, self.folder / "in/a.parquet", row_group_size=1500, compression="none")
        pyarrow.parquet.write_table(self.table.slice(0, 50), self.folder / "in/b.parquet")
        pyarrow.feather.write_feather(self.table.slice(0, 900), str(self.folder / "in/c.feather"), chunksize=100)

    def serve(self, **options):
        server = StoreServer(self.folder, **options)
        self.addCleanup(server.stop)
        return server

    def data(self, form, name, output="out/store"):
        return ["data", "prepare", "--format", form, "--input", name, "--validation", 0.1, "--output", output]

    def test_the_files_are_those_of_a_disk_whatever_the_store_does(self):
        for fault in (lambda number: None, lambda number: FAULTS[number % len(FAULTS)]):
            server = self.serve(fault=fault)
            for form in ("parquet", "arrow"):
                self.succeed(*self.data(form, "in", "out/disk"))
                self.succeed(*self.data(form, "s3://data/in/"), environment=server.environment())
                for suffix in (".bin", ".idx", ".validation.bin", ".validation.idx"):
                    one, other = (self.folder / f"out/{name}{suffix}" for name in ("store", "disk"))
                    self.assertEqual(one.read_bytes(), other.read_bytes())

    def test_what_cannot_be_read_is_one_line(self):
        server = self.serve()
        right = server.environment()
        command = self.data("parquet", "s3://data/in/a.parquet")
        self.fail_with(USER, ["cannot read s3://data/in/a.parquet: the store refuses", "403"], *command,
                       environment={**right, "AWS_SECRET_ACCESS_KEY": "another"})
        self.fail_with(USER, ['s3://data/in/a.parquet has no column "body" but "text", "noise"'], *command, "--text-key", "body",
                       environment=right)
        path = self.folder / "in/a.parquet"
        seen = []

        def fault(number):
            seen.append(number)
            if len(seen) == 4:
                pyarrow.parquet.write_table(self.table.slice(1), path)

        self.fail_with(USER, ["s3://data/in/a.parquet has changed since it was opened"], *command,
                       environment=self.serve(fault=fault).environment())
        path.write_bytes(path.read_bytes()[:-10])
        self.fail_with(USER, ["s3://data/in/a.parquet: "], *command, environment=right)
        self.assertFalse((self.folder / "out/store.bin").exists())


if __name__ == "__main__":
    unittest.main()
