"""`trireme run` where a host gives little: few open files, few processes, a small /dev/shm."""
import json
import os
import pathlib
import pwd
import random
import resource
import subprocess
import time
import unittest

from program import PROGRAM, TIMEOUT, ProgramTest, end
from two_hosts import ADDRESS, TwoHostsTest

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
SMALL_MEMORY, OWN_MEMORY = (
    ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh"]
    for size in ("64k", "256m"))
# Of another user, who may read what root has built.
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups",
             "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
TRAIN = ["run", "--nproc-per-node", "2", "--", PROGRAM, "train", "tiny.toml", "--checkpoint.memory_interval=5"]
DONE, USER = 0, 2


class Limits(ProgramTest):
    def run_under(self, prefix, *arguments, limits=()):
        def set_limits():
            for kind, value in limits:
                resource.setrlimit(kind, (value, value))
        process = subprocess.Popen([*prefix, PROGRAM, *map(str, arguments)], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment,
                                   preexec_fn=set_limits)
        self.addCleanup(end, process)
        self.launchers.append(process.pid)
        output, errors = process.communicate(timeout=TIMEOUT)
        print("campaign: 1 small limits", flush=True)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def check_refused(self, result, *words):
        self.assertEqual(result.returncode, USER, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Atrireme: [^\n]+\n\Z")
        for word in words:
            self.assertRegex(result.stderr, word)
        self.assertEqual(self.segments(), [])

    def test_few_open_files(self):
        for number in (256, 128):
            result = self.run_under([], *TRAIN, f"--output.folder=run-{number}",
                                    limits=[(resource.RLIMIT_NOFILE, number)])
            self.assertEqual((result.returncode, result.stderr), (DONE, ""))
            self.assertEqual(self.curve(f"run-{number}")[-1][0], 20)

    def test_too_few_open_files(self):
        for number in (8, 12, 16):
            result = self.run_under([], *TRAIN, limits=[(resource.RLIMIT_NOFILE, number)])
            self.check_refused(result, "[Tt]oo many open files|descriptor")

    def test_few_processes(self):
        """Of a user who has others; root knows no such limit."""
        self.assertEqual(os.getuid(), 0)
        mine = sum(owner_of(path) == NOBODY.pw_uid for path in pathlib.Path("/proc").glob("[0-9]*/task/*"))
        for number in (1, 3, 5):
            result = self.run_under(AS_NOBODY, *TRAIN, limits=[(resource.RLIMIT_NPROC, mine + number)])
            self.check_refused(result, "temporarily unavailable|ulimit -u")
        time.sleep(0.1)
        left = [path for path in pathlib.Path("/proc").glob("[0-9]*") if owner_of(path) == NOBODY.pw_uid]
        self.assertEqual(len(left), 0 if mine == 0 else mine, left)

    def test_a_small_shared_memory(self):
        """Docker's default is 64 MB; this is less than two ranks need."""
        self.check_refused(self.run_under(SMALL_MEMORY, *TRAIN), "/dev/shm is too small", "needs")


class LimitsOfHosts(TwoHostsTest):
    def test_a_small_shared_memory_on_one_of_two_hosts(self):
        """The job goes on without it, whether or not it leads."""
        small = random.Random(SEED).randrange(2)
        hosts = []
        for host in range(2):
            prefix = SMALL_MEMORY if host == small else OWN_MEMORY
            command = ["ip", "netns", "exec", self.space, *prefix, PROGRAM, "run", "--nproc-per-node", "2", "--nnodes",
                       "1:2", "--last-call", "60", "--rdzv-endpoint", f"{ADDRESS}:29513", "--node-rank", str(host),
                       "--host-name", f"host{host}", *TRAIN[TRAIN.index("--"):]]
            hosts.append(subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE,
                                          env={**self.environment, "TRIREME_TOKEN": "three banks of oars"}))
            self.addCleanup(end, hosts[-1])
        for process in hosts:
            output, errors = process.communicate(timeout=TIMEOUT)
            self.assertEqual((process.returncode, errors), (DONE, ""), output)
        events = [json.loads(line) for line in (self.folder / "run/events.jsonl").read_text().splitlines()]
        starts = [event["text"] for event in events if event["event"] == "start"]
        self.assertIn(f"2 ranks on host{1 - small}", starts[-1])
        self.assertEqual([step for step, *_ in self.curve()], list(range(1, 21)))


def owner_of(path):
    try:
        return os.stat(path).st_uid
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    unittest.main(verbosity=2)
