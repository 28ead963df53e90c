"""`trireme doctor` on a run over two hosts (transport hierarchical). Label netns."""
import os
import signal
import unittest

from doctor_checks import DoctorTest
from program import TIMEOUT
from two_hosts import TwoHostsTest


class DoctorOfTwoHosts(DoctorTest, TwoHostsTest):
    def start_training(self, ranks):
        """The processes of both hosts, and their ranks' process ids by rank; it has printed a step."""
        hosts = [self.start_host(host, ranks, "--train.steps=1000000") for host in range(2)]
        while not hosts[0].stdout.readline().startswith("step"):
            self.assertIsNone(hosts[0].poll(), hosts[0].stderr.read() if hosts[0].poll() is not None else "")
        _, report = self.doctor()
        pids = {rank["rank"]: rank["process_id"] for rank in report["ranks"]}
        self.assertEqual(sorted(pids), list(range(2 * ranks)))
        self.addCleanup(self.kill, pids)
        return hosts, pids

    @staticmethod
    def kill(pids):
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def test_a_stopped_rank_is_named_on_either_host(self):
        for ranks in (1, 2):
            hosts, pids = self.start_training(ranks)
            for rank in (2 * ranks - 1, 0):
                with self.subTest(ranks=ranks, rank=rank):
                    self.check_stopped_rank(pids, rank)
            for host in hosts:
                self.assertIsNone(host.poll())
            self.kill(pids)
            for host in hosts:
                host.communicate(timeout=TIMEOUT)

    def test_a_killed_rank_is_named_on_either_host(self):
        for ranks, victim in ((1, 1), (2, 0)):
            with self.subTest(ranks=ranks, victim=victim):
                hosts, pids = self.start_training(ranks)
                self.check_killed_rank(hosts, pids, victim, code=0)  # of the shells that waited for them

    def test_calls_within_and_across_hosts_are_parts_of_one(self):
        _, pids = self.start_training(2)
        _, report = self.doctor("--calls", 4096)
        for rank in report["ranks"]:
            self.assertFalse({"send", "recv"} & {call["operation"] for call in rank["calls"]})
        self.kill(pids)


if __name__ == "__main__":
    unittest.main(verbosity=2)
