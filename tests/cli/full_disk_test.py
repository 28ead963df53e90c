"""A disk without room or that cannot be written: exit code 2, what is needed and free, nothing lost."""
import os
import re
import subprocess
import unittest

from program import ProgramTest

USER = 2


class FullDisk(ProgramTest):
    """On a small file system of its own, which takes root."""

    def mount(self, options):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()

    def test_a_checkpoint_without_room_says_what_it_needs_and_the_same_command_resumes(self):
        self.mount("size=1m")
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                run = f"disk/run-{ranks}"
                train = ["train", "tiny.toml", "--ranks", ranks, f"--output.folder={run}", "--checkpoint.keep=0"]
                line = self.fail_with(USER, ["No space left on device", "make room there", f"{run}/checkpoints"],
                                      *train, "--checkpoint.interval=1")
                words = re.search(r"the checkpoint needs (\d+) bytes in \S+, which has (\d+) free", line)
                self.assertTrue(words, line)
                self.assertGreater(int(words[1]), int(words[2]))
                saved = self.checkpoints(run)
                self.assertGreaterEqual(len(saved), 1)
                self.assertTrue(all(re.fullmatch(r"step-\d{6}", name) for name in saved), saved)
                for name in saved:
                    self.succeed("checkpoint", "verify", f"{run}/checkpoints/{name}")
                subprocess.run(["mount", "-o", "remount,size=16m", self.disk], check=True)
                self.succeed(*train, "--train.steps=8")
                self.assertEqual([step for step, _, _ in self.curve(run)], list(range(1, 9)))
                for path in sorted((self.folder / run).rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
                subprocess.run(["mount", "-o", "remount,size=1m", self.disk], check=True)

    def test_a_folder_that_turned_read_only_is_the_users_to_mend(self):
        self.mount("size=16m")
        run = ["train", "tiny.toml", "--ranks", 2, "--output.folder=disk/run"]
        self.succeed(*run, "--train.steps=2")
        subprocess.run(["mount", "-o", "remount,ro", self.disk], check=True)
        self.fail_with(USER, ["disk/run", "cannot be written"], *run, "--train.steps=4")


def load_tests(loader, tests, pattern):
    if os.geteuid() != 0:
        print("full_disk_test: not root, so without the tests that mount a small disk", flush=True)
        return unittest.TestSuite()
    return tests


if __name__ == "__main__":
    unittest.main(verbosity=2)
