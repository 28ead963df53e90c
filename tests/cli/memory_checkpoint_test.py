"""Checkpoints in memory outlive every process of the run, and are gone when it has ended."""
import glob
import os
import shutil
import time
import unittest

from program import TIMEOUT, ProgramTest, children

MEMORY = ["--checkpoint.memory_interval=1", "--checkpoint.interval=1000", "--train.steps=40"]


def memory_folders():
    return set(glob.glob("/dev/shm/trireme-checkpoint-*"))


class MemoryCheckpoint(ProgramTest):
    def setUp(self):
        self.before = memory_folders()
        super().setUp()
        self.addCleanup(lambda: [shutil.rmtree(folder) for folder in memory_folders() - self.before])

    def kill_after(self, lines, *arguments):
        """Starts a run, waits for so many lines of metrics, and kills the launcher and all ranks."""
        process = self.start("train", "tiny.toml", "--ranks", 2, *arguments)
        metrics = self.folder / "run/metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < lines:
            self.assertIsNone(process.poll())
            time.sleep(0.002)
        ranks = children(process.pid)
        for pid in (process.pid, *ranks):
            os.kill(pid, 9)
        process.communicate(timeout=TIMEOUT)

    def test_every_process_killed(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--output.folder=whole", "--train.steps=40")
        for lines in (5, 12, 20):
            self.kill_after(lines, *MEMORY)
            self.assertEqual(len(memory_folders() - self.before), 1)
        output = self.succeed("train", "tiny.toml", "--ranks", 2, *MEMORY)
        self.assertRegex(output, r"checkpoint in memory: step \d+, \d+ s old: used")
        self.assertRegex(output, r"checkpoint in run/checkpoints: step \d+, \d+ s old: (older|slower to read)")
        self.assertEqual(self.curve(), self.curve("whole"))
        self.assertEqual(memory_folders(), self.before)

    def test_a_killed_rank(self):
        """The launcher says what it leaves in memory."""
        process = self.start("train", "tiny.toml", "--ranks", 2, *MEMORY)
        metrics = self.folder / "run/metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < 8:
            self.assertIsNone(process.poll())
            time.sleep(0.002)
        os.kill(children(process.pid)[-1], 9)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertRegex(errors, r"the same command resumes; in memory: step \d+, \d+ s old\n")
        self.succeed("train", "tiny.toml", "--ranks", 2, *MEMORY)

    def test_memory_of_a_run_that_was_removed_is_not_another_runs(self):
        self.kill_after(8, *MEMORY)
        old = memory_folders() - self.before
        shutil.rmtree(self.folder / "run")
        output = self.succeed("train", "tiny.toml", "--ranks", 2, *MEMORY)
        self.assertNotIn("checkpoint in memory", output)
        self.assertEqual(self.curve()[0][0], 1)
        self.assertEqual(memory_folders() & old, set())

    def test_memory_is_used_when_it_is_no_longer_asked_for(self):
        self.kill_after(8, *MEMORY)
        output = self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=40")
        self.assertRegex(output, r"checkpoint in memory: step \d+")
        self.assertEqual(memory_folders(), self.before)

    def test_what_cannot_be(self):
        self.fail_with(2, ["checkpoint.replicas is 1", "on 1 host"], "train", "tiny.toml", "--ranks", 2, *MEMORY,
                       "--checkpoint.replicas=1")
        self.assertEqual(memory_folders(), self.before)
        self.fail_with(2, ["checkpoint.memory_interval"], "train", "tiny.toml", "--checkpoint.replicas=1")
        (self.folder / "file").write_text("")
        self.fail_with(2, ["file"], "train", "tiny.toml", "--checkpoint.local=file/fast")


if __name__ == "__main__":
    unittest.main(verbosity=2)
