"""Parameter servers of workers on two hosts. Label netns."""
import unittest

from program import TIMEOUT
from two_hosts import TwoHostsTest

PLAIN = ["--train.precision=fp64", "--train.gradient_clip=0", "--train.steps=6", "--train.global_batch=48"]


class ServersOfTwoHosts(TwoHostsTest):
    def train_on_two_hosts(self, run, ranks, *options):
        hosts = [self.start_host(host, ranks, f"--output.folder={run}", *PLAIN, *options) for host in range(2)]
        errors = [host.communicate(timeout=TIMEOUT)[1] for host in hosts]
        self.assertEqual(errors, ["", ""])

    maxDiff = None

    def losses(self, run):
        return [line["loss"] for line in self.metrics(run)]

    def test_the_workers_of_both_train_as_those_of_one(self):
        # The last rank is the server, so the second host has one worker less.
        self.succeed("train", "tiny.toml", "--ranks", 3, "--output.folder=one", *PLAIN)
        servers = ["--parallel.servers=1"]
        self.train_on_two_hosts("two", 2, *servers)
        self.assertEqual(self.losses("two"), self.losses("one"))
        self.train_on_two_hosts("sums", 2, *servers, "--parallel.host_sums=true")
        self.assertEqual(self.losses("sums"), self.losses("one"), "one rank of each host talks to the server")

    def test_asynchronous_hosts_learn(self):
        self.train_on_two_hosts("run", 3, "--parallel.servers=2", "--parallel.staleness=-1", "--parallel.host_sums=true",
                                "--checkpoint.interval=3")
        losses = self.losses("run")
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0])
        self.assertTrue(self.checkpoints("run"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
