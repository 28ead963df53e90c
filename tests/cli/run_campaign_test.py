"""`trireme run` on hosts of its own, while workers, agents, hosts and the network fail.

Hosts are network namespaces on a bridge, each with a /dev/shm of its own and one worker; they share a folder. A seeded
campaign draws events. After each, the run must finish further steps with the hosts that are there. At its end the run is
stopped and must have every step once, with the bits of a run that was left in peace; nothing else may be left.

    tests/cli/run_campaign_test.py --events 200 --seed 3 [--hosts 4]

prints the table of benchmarks/results/2026-11-25-run-campaign.md
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

os.environ.setdefault("TRIREME_PROGRAM", str(pathlib.Path(__file__).parents[2] / "build/release/bin/trireme"))
from program import PROGRAM, ProgramTest, is_running  # noqa: E402

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
EVENTS, HOSTS = 6, 2
PATIENCE = 90  # seconds for the run to go on after an event
DISK = "32m"  # of the run's folder
LEASE = 1.5
PORT = 29466
NETWORK = "10.231.81"
# The order of sums does not depend on the number of ranks, so that every epoch continues the same run.
OPTIONS = ["--train.steps=1000000", "--train.global_batch=8", "--train.micro_batch=1", "--train.reproducible=true",
           "--optimizer.schedule=constant", "--checkpoint.interval=25", "--checkpoint.keep=2",
           "--checkpoint.memory_interval=5", "--checkpoint.replicas=1", "--parallel.timeout_seconds=20"]
COLUMNS = ["events", "recovered", "median s", "worst s"]


def run(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, capture_output=True, text=True)


def descendants(pid):
    """The process and all below it, as this process numbers them."""
    found = [pid]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += descendants(int(child))
    return found


def is_worker(pid):
    with contextlib.suppress(OSError):
        return b"TRIREME_AGENT_FD=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    return False


class Host:
    """A network namespace with an address, and an agent in it."""

    def __init__(self, test, number):
        self.test, self.number, self.name = test, number, f"h{number}"
        self.space, self.cable = f"trireme-{os.getpid()}-{self.name}", f"tri{os.getpid() % 10000}{self.name}"
        self.memory = test.folder / f"memory-{self.name}"
        self.agent, self.is_cut = None, False

    def make(self):
        run("ip", "netns", "add", self.space)
        self.test.addCleanup(run, "ip", "netns", "delete", self.space)
        run("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        self.test.addCleanup(run, "ip", "link", "delete", self.cable)  # its namespace would do so later
        run("ip", "link", "set", self.cable, "master", self.test.bridge, "up")
        run("ip", "-n", self.space, "address", "add", f"{NETWORK}.{self.number}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", self.space, "link", "set", link, "up")
        self.memory.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", self.memory)
        self.test.addCleanup(run, "umount", self.memory)

    def start(self):
        script = f"mount --bind '{self.memory}' /dev/shm && exec \"$@\""
        log = open(self.test.folder / f"{self.name}.out", "a")
        self.agent = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "--mount", "sh", "-c", script, "sh", PROGRAM, "run",
             "--nproc-per-node", "1", "--nnodes", self.test.nodes or f"1:{self.test.num_hosts}", "--rdzv-endpoint", f"{NETWORK}.1:{PORT}",
             "--node-rank", str(self.number - 1), "--host-name", self.name, "--max-restarts", "100000", "--lease",
             str(LEASE), "--last-call", "60", "--join-timeout", "60", "--grace", "3", "--", "trireme", "train",
             "tiny.toml", *(self.test.options or OPTIONS)],
            cwd=self.test.folder, stdout=log, stderr=subprocess.STDOUT, env=self.test.environment,
            start_new_session=True)
        log.close()
        self.test.addCleanup(self.end)

    def end(self):
        for pid in descendants(self.agent.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.agent.wait()

    def worker(self):
        found = [pid for pid in descendants(self.agent.pid) if is_worker(pid)]
        return found[0] if found else None

    def set_link(self, state):
        run("ip", "link", "set", self.cable, state)
        self.is_cut = state == "down"

    @property
    def is_up(self):
        return self.agent is not None and self.agent.poll() is None


class HostsTest(ProgramTest):
    """A test with `num_hosts` hosts, and a disk for the run that they share."""
    num_hosts, seed = HOSTS, SEED
    nodes = options = None  # those of `trireme run` and of `trireme train`; None: one host or more, OPTIONS

    def setUp(self):
        super().setUp()
        print(f"TRIREME_TEST_SEED={self.seed}", flush=True)
        self.random = random.Random(self.seed)
        self.environment["TRIREME_TOKEN"] = "three banks of oars"
        self.bridge = f"tri{os.getpid() % 10000}br"
        run("ip", "link", "add", self.bridge, "type", "bridge")
        self.addCleanup(run, "ip", "link", "delete", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        self.disk = self.folder / "run"
        self.disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.disk)
        self.addCleanup(run, "umount", self.disk)
        self.hosts = [Host(self, number + 1) for number in range(self.num_hosts)]
        for host in self.hosts:
            host.make()

    # What the run has done.

    def newest_step(self):
        try:
            lines = (self.folder / "run/metrics.jsonl").read_bytes().split(b"\n")[:-1]
            return json.loads(lines[-1])["step"] if lines else 0
        except (OSError, ValueError):
            return 0

    def await_step(self, step, why):
        """Seconds until the step is finished."""
        start = time.monotonic()
        while self.newest_step() < step:
            if time.monotonic() - start > PATIENCE:
                outputs = "".join(f"--- {host.name}\n" + (self.folder / f"{host.name}.out").read_text()[-3000:]
                                  for host in self.hosts)
                self.fail(f"step {step} was not finished within {PATIENCE} s after {why}\n{outputs}")
            time.sleep(0.01)
        return time.monotonic() - start

    def events(self):
        found = []
        for line in (self.disk / "events.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):  # a full disk cuts a line short
                found.append(json.loads(line))
        return found

    def await_hosts(self, why):
        """Until the newest epoch has all hosts that are up."""
        names = sorted(host.name for host in self.hosts if host.is_up)
        start = time.monotonic()
        while True:
            starts = [event for event in self.events() if event["event"] == "start"]
            if starts and all(name in starts[-1]["text"].split(";")[0] for name in names):
                return
            if time.monotonic() - start > PATIENCE:
                self.fail(f"{names} were not all taken in after {why}: {starts[-1]}")
            time.sleep(0.05)


class Campaign(HostsTest):
    num_events = EVENTS

    def setUp(self):
        super().setUp()
        self.table = collections.defaultdict(list)

    # Events. Each returns what must be done once the run has gone on. Those that last until then set `seconds`.

    def any_host(self, others_only=False):
        return self.random.choice(self.hosts[1:] if others_only else self.hosts)

    def kill_worker(self):
        pid = self.any_host().worker()
        if pid:
            os.kill(pid, signal.SIGKILL)

    def saved(self):
        return sorted(path.name for path in self.disk.glob("checkpoints/step-*") if "." not in path.name)

    def await_save(self):
        checkpoints = self.disk / "checkpoints"
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not list(checkpoints.glob("*.tmp*")) + list(checkpoints.glob(".*")):
            time.sleep(0.0005)

    def kill_worker_in_a_save(self):
        self.await_save()
        self.kill_worker()

    def kill_worker_in_a_recovery(self):
        self.kill_worker()
        time.sleep(self.random.random() * 0.7)
        self.kill_worker()

    def kill_all_workers(self):
        for host in self.hosts:
            pid = host.worker()
            if pid:
                os.kill(pid, signal.SIGKILL)

    def stop_worker(self):
        pid = self.any_host().worker()
        if not pid:
            return None
        os.kill(pid, signal.SIGSTOP)

        def go_on():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        time.sleep(self.random.random() * 3)
        go_on()
        return None

    def kill_host(self):
        """The agent and its workers, and what the host had in memory."""
        host = self.any_host(others_only=True)
        host.end()
        for item in host.memory.iterdir():
            shutil.rmtree(item) if item.is_dir() else item.unlink()
        return host.start

    def kill_agent(self):
        host = self.any_host(others_only=True)
        host.agent.kill()
        host.agent.wait()
        return host.start

    def cut_network(self):
        host = self.any_host(others_only=True)
        host.set_link("down")
        self.seconds = self.await_step(self.newest_step() + 1, "a cut network")
        time.sleep(self.random.random() * 3)
        return lambda: host.set_link("up")

    def cut_network_for_a_moment(self):
        host = self.any_host(others_only=True)
        host.set_link("down")
        time.sleep(self.random.random() * 1.0)
        host.set_link("up")

    def leave(self):
        host = self.any_host(others_only=True)
        if host.worker() is None:
            return host.start if not host.is_up else None
        host.agent.terminate()
        start = time.monotonic()
        self.assertEqual(host.agent.wait(timeout=PATIENCE), 0, (self.folder / f"{host.name}.out").read_text()[-2000:])
        self.await_step(self.newest_step() + 1, "a host that left")
        self.seconds = time.monotonic() - start
        return host.start

    def kill_leader(self):
        """The others kill their workers and wait for it to come back."""
        self.hosts[0].agent.kill()
        self.hosts[0].agent.wait()
        time.sleep(self.random.random() * 3)
        self.hosts[0].start()

    def fill_disk_in_a_save(self):
        """The job goes on, or ends with 2 on all hosts; the same commands then go on with what was saved."""
        before = self.saved()
        self.await_save()
        filling = self.disk / "filling"
        deadline = time.monotonic() + 10
        with open(filling, "wb", buffering=0) as file:
            while any(host.is_up for host in self.hosts) and time.monotonic() < deadline:
                with contextlib.suppress(OSError):  # what the run removes is filled too
                    while file.write(bytes(1 << 16)):
                        pass
                time.sleep(0.01)
        ended = [host for host in self.hosts if not host.is_up]
        filling.unlink()
        for host in self.hosts if ended else []:
            self.assertEqual(host.agent.wait(timeout=PATIENCE), 2,
                             (self.folder / f"{host.name}.out").read_text()[-3000:])
        for name in self.saved() if ended else []:
            self.succeed("checkpoint", "verify", f"run/checkpoints/{name}")
        self.assertGreaterEqual(self.saved()[-1:], before[-1:])
        for host in self.hosts if ended else []:
            host.start()
        return (lambda: None) if ended else None  # all hosts are there again

    KINDS = {
        "worker killed": (kill_worker, 4), "worker killed in a save": (kill_worker_in_a_save, 2),
        "worker killed in a recovery": (kill_worker_in_a_recovery, 2), "all workers killed": (kill_all_workers, 1),
        "worker stopped for up to 3 s": (stop_worker, 2), "host lost with its memory": (kill_host, 2),
        "agent killed": (kill_agent, 2), "network cut": (cut_network, 2),
        "network cut for up to 1 s": (cut_network_for_a_moment, 1), "host leaves and joins": (leave, 2),
        "leader killed and started again": (kill_leader, 1), "disk full in a save": (fill_disk_in_a_save, 1)}

    def one_event(self):
        kind = self.random.choices(list(self.KINDS), [weight for _, weight in self.KINDS.values()])[0]
        step, self.seconds = self.newest_step(), None
        print(f"{time.strftime('%X')} step {step}: {kind}", flush=True)
        mend = self.KINDS[kind][0](self)
        if self.seconds is None:
            self.seconds = self.await_step(self.newest_step() + 1, kind)
        self.table[kind].append(self.seconds)
        if mend:
            mend()
            self.await_hosts(kind)
        self.await_step(self.newest_step() + self.random.randrange(3, 12), kind + ", afterwards")

    # The whole.

    def check_curve(self):
        """Every step once, with the bits of a run that was left in peace on one rank."""
        curve = self.curve()
        steps = [point[0] for point in curve]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        whole = [option for option in OPTIONS if not option.startswith(("--train.steps", "--checkpoint"))]
        self.succeed("train", "tiny.toml", *whole, "--optimizer.schedule=constant", f"--train.steps={len(steps)}",
                     "--output.folder=whole", "--checkpoint.interval=1000000")
        self.assertEqual(curve, self.curve("whole"))

    def check_rest(self):
        for host in self.hosts:
            self.assertEqual([path.name for path in host.memory.iterdir()], [])
        left = [path for path in (self.folder / "run").rglob("*") if ".tmp" in path.name or path.name.startswith(".")]
        self.assertEqual(left, [])
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_every_step_is_there_once_whatever_fails(self):
        for host in self.hosts:
            host.start()
        self.await_step(3, "the start")
        for _ in range(self.num_events):
            self.one_event()
        everyone = [pid for host in self.hosts for pid in descendants(host.agent.pid)]
        self.hosts[0].agent.terminate()
        for host in self.hosts:
            self.assertEqual(host.agent.wait(timeout=PATIENCE), 0,
                             (self.folder / f"{host.name}.out").read_text()[-3000:])
        deadline = time.monotonic() + 10
        while any(is_running(pid) for pid in everyone) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([pid for pid in everyone if is_running(pid)], [])
        self.check_curve()
        self.check_rest()


def print_table(table):
    print("| " + " | ".join(["event", *COLUMNS]) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    for kind, seconds in [*table.items(), ("all", [s for values in table.values() for s in values])]:
        ordered = sorted(seconds)
        cells = [kind, len(seconds), len(seconds), f"{ordered[len(ordered) // 2]:.1f}", f"{ordered[-1]:.1f}"]
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--seed", type=int, default=SEED)
    arguments, rest = parser.parse_known_args()
    Campaign.num_events, Campaign.num_hosts, Campaign.seed = arguments.events, arguments.hosts, arguments.seed
    campaign = Campaign("test_every_step_is_there_once_whatever_fails")
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite([campaign]))
    if campaign.table:
        print_table(campaign.table)
    sys.exit(not result.wasSuccessful())
