"""A mixture of experts over two hosts: a token crosses once to each. Label netns."""
import unittest

from program import TIMEOUT
from two_hosts import TwoHostsTest

SPARSE = ["--model.family=mixtral", "--model.experts=6", "--model.experts_per_token=3", "--model.expert_width=24",
          "--model.shared_experts=1", "--parallel.expert=4", "--train.steps=6", "--train.check_replicas_interval=3"]


class ExpertsOfTwoHosts(TwoHostsTest):
    def test_the_bits_are_those_of_one_host(self):
        for name, options in (("whole", []), ("chunks", ["--parallel.expert_chunk=50", "--parallel.zero=2"])):
            with self.subTest(name):
                self.succeed("train", "tiny.toml", "--ranks", 4, f"--output.folder=one-{name}", *SPARSE, *options)
                hosts = [self.start_host(host, 2, f"--output.folder=two-{name}", *SPARSE, *options)
                         for host in range(2)]
                for host in hosts:
                    _, errors = host.communicate(timeout=TIMEOUT)
                    self.assertEqual((host.returncode, errors), (0, ""))
                self.assertEqual(self.curve(f"two-{name}"), self.curve(f"one-{name}"))
                # The exchange went over groups of a host and of a place on each host.
                calls = self.run_program("doctor", f"two-{name}", "--json", "--calls", 4096).stdout
                self.assertIn(".host\"", calls)


if __name__ == "__main__":
    unittest.main(verbosity=2)
