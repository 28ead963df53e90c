"""Open vocabularies from the command line: hashes are prepared, trained on, planned, and survive kills."""
import glob
import json
import os
import shutil
import unittest

from program import CLUSTER, TIMEOUT, ProgramTest, children

CONFIG = """
[task]
name = "recommend"
[model]
width = 8
bottom = "8"
top = "8"
[data]
path = "hashes"
[tables]
learning_rate = 0.05
open = "all"
open_max_rows = 40
open_expire_steps = 2
[train]
steps = 40
global_batch = 64
micro_batch = 16
reproducible = true
[optimizer]
learning_rate = 1e-3
[checkpoint]
interval = 1000
memory_interval = 1
[output]
folder = "run"
"""


def memory_folders():
    return set(glob.glob("/dev/shm/trireme-checkpoint-*"))


class OpenTables(ProgramTest):
    def prepare(self):
        self.before = memory_folders()
        self.addCleanup(lambda: [shutil.rmtree(folder) for folder in memory_folders() - self.before])
        (self.folder / "config.toml").write_text(CONFIG)
        (self.folder / "cluster.toml").write_text(CLUSTER)
        self.succeed("data", "generate", "--samples", 3000, "--scale", 0.001, "--output", "day.tsv")
        output = self.succeed("data", "prepare", "--format", "criteo", "--ids", "hash", "--input", "day.tsv", "--output",
                              "hashes")
        self.assertIn("tables  26 with hashed ids", output)

    def test_kills_change_nothing(self):
        """Checkpoints in memory, of which a start on another number of ranks reads what it lacks."""
        for keys, evicted in ((("--tables.open_when_full=evict",), r"[1-9]\d*"),
                              (("--tables.open_when_full=evict-rarest",), r"[1-9]\d*"),
                              (("--tables.open_max_rows=0", "--tables.memory=75000"), "0")):
            with self.subTest(keys):
                self.check_kills(keys, evicted)

    def check_kills(self, keys, evicted):
        for folder in ("run", "whole"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        output = self.succeed("train", "config.toml", "--ranks", 2, "--output.folder=whole", *keys)
        self.assertRegex(output, r"tables  26 open: \d+ rows in use; since the start \d+ begun, [1-9]\d* expired, "
                                 + evicted + " evicted")
        for ranks, lines in ((2, 6), (4, 14), (1, 22)):
            process = self.start("train", "config.toml", "--ranks", ranks, *keys)
            self.await_step(lines, process)
            for pid in (process.pid, *children(process.pid)):
                os.kill(pid, 9)
            process.communicate(timeout=TIMEOUT)
        output = self.succeed("train", "config.toml", "--ranks", 2, "--tables.placement=whole", *keys)
        self.assertRegex(output, r"checkpoint in memory: step \d+, \d+ s old: used")
        self.assertEqual(self.curve(), self.curve("whole"))
        self.assertEqual(memory_folders(), self.before)

    def test_plan(self):
        plan = json.loads(self.succeed("plan", "config.toml", "cluster.toml", "--json"))
        self.assertEqual(len(plan["tables"]), 26)
        for table in plan["tables"]:
            self.assertTrue(table["open"])
            self.assertLessEqual(table["rows"], 40)
            self.assertNotEqual(table["split"], "columns")
        self.succeed("plan", "config.toml", "cluster.toml", "--zipf", "1.1")
        self.fail_with(2, ["set tables.open_max_rows"], "plan", "config.toml", "cluster.toml", "--zipf", "1.1",
                       "--tables.open_max_rows=0")

    def test_bad_input(self):
        prepare = ["data", "prepare", "--format", "criteo", "--input", "day.tsv", "--output", "new"]
        self.fail_with(2, ["min_count is 3", "tables.open_min_uses"], *prepare, "--ids", "hash", "--min-count", 3)
        self.fail_with(2, ["--ids is that of --dictionary"], *prepare, "--ids", "hash", "--dictionary", "hashes")
        self.fail_with(2, ["--ids", "rows,hash"], *prepare, "--ids", "numbers")
        self.fail_with(2, ['hashed ids for "C1"'], "train", "config.toml", "--tables.open=C2")
        self.fail_with(2, ["rows; expected at most 40 (open_max_rows)"], "train", "config.toml", "--ranks", 2,
                       "--tables.open_when_full=refuse")


if __name__ == "__main__":
    unittest.main()
