"""`trireme doctor` on a run over two hosts (transport hierarchical), which this one pretends to be.

Each host has a /dev/shm of its own, by which hosts are told apart; both share a network namespace with an interface
that is not the loopback, a folder, and this machine's processes. Label netns: root and `ip netns`.
"""
import os
import signal
import subprocess
import unittest

from doctor_checks import DoctorTest
from program import PROGRAM, TIMEOUT, end

INTERFACE = "oar3"
ADDRESS = "10.231.79.1"


class DoctorOfTwoHosts(DoctorTest):
    def setUp(self):
        super().setUp()
        self.space = f"trireme-{os.getpid()}-doctor"
        self.ip("netns", "add", self.space)
        self.addCleanup(self.ip, "netns", "delete", self.space)
        self.ip("-n", self.space, "link", "add", INTERFACE, "type", "veth", "peer", "name", f"{INTERFACE}b")
        self.ip("-n", self.space, "address", "add", f"{ADDRESS}/24", "dev", INTERFACE)
        for link in ("lo", INTERFACE, f"{INTERFACE}b"):
            self.ip("-n", self.space, "link", "set", link, "up")

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    def start_host(self, host, ranks):
        """`ranks` ranks in a mount namespace of their own; each is a child of the returned process."""
        first = host * ranks
        script = f"""mount -t tmpfs -o size=256m tmpfs /dev/shm
        for local in $(seq 0 {ranks - 1}); do
          RANK=$(({first} + local)) LOCAL_RANK=$local "$@" &
        done
        wait"""
        environment = {**self.environment, "WORLD_SIZE": str(2 * ranks), "LOCAL_WORLD_SIZE": str(ranks),
                       "MASTER_ADDR": ADDRESS, "MASTER_PORT": "29511", "TRIREME_TOKEN": "three banks of oars"}
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "--mount", "sh", "-c", script, "sh", PROGRAM, "train",
             "tiny.toml", "--train.steps=1000000"],
            cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(end, process)
        return process

    def start_training(self, ranks):
        """The processes of both hosts, and their ranks' process ids by rank; it has printed a step."""
        hosts = [self.start_host(host, ranks) for host in range(2)]
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
