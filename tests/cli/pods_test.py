"""Ranks that share no memory and yet a network: the containers of a pod, and a host without IPv4. Label netns."""
import os
import subprocess
import unittest

from program import PROGRAM, TIMEOUT, ProgramTest, end

PORT = 29517
OPTIONS = ["--train.steps=4", "--parallel.timeout_seconds=60"]


class Pod(ProgramTest):
    def setUp(self):
        super().setUp()
        self.space = f"trireme-{os.getpid()}-pod"
        self.ip("netns", "add", self.space)
        self.addCleanup(self.ip, "netns", "delete", self.space)
        self.ip("-n", self.space, "link", "set", "lo", "up")

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    def start_container(self, rank, folder, address, **variables):
        """A rank with processes of its own, by which hosts are told apart."""
        environment = {**self.environment, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                       "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": address, "MASTER_PORT": str(PORT), **variables}
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", PROGRAM,
             "train", "tiny.toml", f"--output.folder={folder}", *OPTIONS],
            cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(end, process)
        return process

    def train_pod(self, folder, address, **variables):
        for process in [self.start_container(rank, folder, address, **variables) for rank in range(2)]:
            _, errors = process.communicate(timeout=TIMEOUT)
            self.assertEqual((process.returncode, errors), (0, ""))

    def test_containers_meet_over_the_loopback(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--output.folder=one", *OPTIONS)
        self.train_pod("pod", "127.0.0.1")
        self.assertEqual(self.curve("pod"), self.curve("one"))
        self.train_pod("named", "127.0.0.1", GLOO_SOCKET_IFNAME="lo")
        self.assertEqual(self.curve("named"), self.curve("one"))

    def test_without_ipv4(self):
        self.ip("-n", self.space, "address", "flush", "dev", "lo")
        self.ip("-n", self.space, "address", "add", "::1/128", "dev", "lo")
        self.succeed("train", "tiny.toml", "--ranks", 2, "--output.folder=one", *OPTIONS)
        subprocess.run(["ip", "netns", "exec", self.space, PROGRAM, "train", "tiny.toml", "--ranks", "2",
                        "--parallel.transport=gloo", "--output.folder=gloo", *OPTIONS],
                       cwd=self.folder, env=self.environment, check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.curve("gloo"), self.curve("one"))
        self.train_pod("pod", "::1")
        self.assertEqual(self.curve("pod"), self.curve("one"))


if __name__ == "__main__":
    unittest.main()
