"""Checkpoints in the memory of two hosts, of which one is lost. Label netns."""
import os
import shutil
import subprocess
import time
import unittest

from program import TIMEOUT
from two_hosts import TwoHostsTest

OPTIONS = ["--train.steps=30", "--checkpoint.memory_interval=1", "--checkpoint.replicas=1", "--checkpoint.interval=1000",
           "--parallel.zero=3"]


class MemoryOfTwoHosts(TwoHostsTest):
    def setUp(self):
        super().setUp()
        for host in range(2):  # each host's /dev/shm, which outlives its processes
            memory = self.memory(host)
            memory.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", memory], check=True)
            self.addCleanup(subprocess.run, ["umount", memory], check=True)

    def memory(self, host):
        return self.folder / f"memory{host}"

    def start_hosts(self, *arguments):
        return [self.start_host(host, 2, *OPTIONS, *arguments, memory=self.memory(host)) for host in range(2)]

    def finish(self, *arguments):
        """Both hosts' output."""
        hosts = self.start_hosts(*arguments)
        texts = []
        for host in hosts:
            output, errors = host.communicate(timeout=TIMEOUT)
            self.assertEqual((host.returncode, errors), (0, ""))
            texts.append(output)
        return texts

    def kill_at(self, lines, *arguments):
        hosts = self.start_hosts(*arguments)
        metrics = self.folder / "run/metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < lines:
            self.assertTrue(all(host.poll() is None for host in hosts))
            time.sleep(0.005)
        for host in hosts:
            self.kill_tree(host.pid)
            host.communicate(timeout=TIMEOUT)

    def kill_tree(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            for child in file.read().split():
                self.kill_tree(child)
        os.kill(int(pid), 9)

    def test_either_host_may_be_lost(self):
        self.succeed("train", "tiny.toml", "--ranks", 4, "--output.folder=whole", "--train.steps=30",
                     "--parallel.zero=3")
        for lost, lines in ((1, 6), (0, 14)):
            self.kill_at(lines)
            for item in self.memory(lost).iterdir():  # another host takes its place
                shutil.rmtree(item) if item.is_dir() else item.unlink()
            shutil.rmtree(self.folder / "run/checkpoints", ignore_errors=True)
        (self.folder / "run/first_checkpoint.json").unlink(missing_ok=True)
        first, _ = self.finish()
        self.assertRegex(first, r"checkpoint in memory: step \d+, \d+ s old: used")
        self.assertEqual(self.curve(), self.curve("whole"))
        for host in range(2):
            self.assertEqual([item.name for item in self.memory(host).iterdir()], [])

    def test_both_lost_without_a_checkpoint_begin_again(self):
        self.kill_at(6)
        for host in range(2):
            for item in self.memory(host).iterdir():
                shutil.rmtree(item) if item.is_dir() else item.unlink()
        first, _ = self.finish()
        self.assertIn("begins again at step 1", first)


if __name__ == "__main__":
    unittest.main(verbosity=2)
