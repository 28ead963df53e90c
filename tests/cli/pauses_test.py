"""`trireme run` on two agents of which a part is stopped for longer than the lease, and goes on.

A part is an agent, a worker or a whole host, as when a virtual machine is paused. Whatever it was doing, the run goes on
without it and takes it back; no worker of an epoch before is left; the run has the bits of one that was left in peace.

    tests/cli/pauses_test.py --pauses 100 --seed 3     # each part once, then drawn ones
"""
import argparse
import collections
import contextlib
import fcntl
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

os.environ.setdefault("TRIREME_PROGRAM", str(pathlib.Path(__file__).parents[2] / "build/release/bin/trireme"))
from program import PROGRAM, TIMEOUT, ProgramTest, children, end, freeze, is_running  # noqa: E402

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
PAUSES = 0
LEASE = 1.0
LONG = LEASE + 2  # the leader counts a host out after its lease and a second
PATIENCE = 90  # seconds for the run to go on
PARTS = ["the follower's host", "the follower's agent", "the follower's worker", "the leader's host", "the leader's agent",
         "the leader's worker"]
# The order of sums does not depend on the number of ranks, so that every epoch continues the same run.
OPTIONS = ["--train.steps=1000000", "--train.global_batch=8", "--train.micro_batch=1", "--train.reproducible=true",
           "--optimizer.schedule=constant", "--checkpoint.interval=10", "--checkpoint.keep=2",
           "--parallel.timeout_seconds=20"]
# Every worker adds lines to one file.
WRITER = """
while :; do
  echo "$TRIREME_EPOCH $RANK $$" >> $DIR/lines
  sleep 0.01
done
"""


def command(pid):
    """The words of a process; none when it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def go_on(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Pauses(ProgramTest):
    def start_agents(self, command, names=("leader", "follower")):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
        self.agents, self.outputs = [], []
        for number, name in enumerate(names):
            output = self.folder / f"{name}.out"
            with open(output, "w") as file:
                words = [PROGRAM, "run", "--nproc-per-node", 1, "--nnodes", f"1:{len(names)}", "--rdzv-endpoint", endpoint,
                         "--node-rank", number, "--host-name", name, "--max-restarts", 100000, "--lease", LEASE,
                         "--last-call", 30, "--grace", 3, "--log-dir", "run", "--", *command]
                agent = subprocess.Popen([str(word) for word in words], cwd=self.folder, env=self.environment,
                                         stdout=file, stderr=subprocess.STDOUT)
            self.addCleanup(end, agent)
            self.launchers.append(agent.pid)
            self.agents.append(agent)
            self.outputs.append(output)

    def said(self):
        return "".join(f"--- {output.name}\n{output.read_text()[-3000:]}" for output in self.outputs)

    def until(self, condition, why):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"not within {PATIENCE} s: {why}\n{self.said()}")
            self.assertEqual([agent.poll() for agent in self.agents], [None] * len(self.agents), self.said())
            time.sleep(0.01)

    def starts(self):
        """Of epochs: how many hosts each has."""
        try:
            lines = (self.folder / "run/events.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        texts = [event["text"] for event in map(json.loads, lines) if event["event"] == "start"]
        return [text.split(";")[0].count("leader") + text.split(";")[0].count("follower") for text in texts]

    def await_both(self, why):
        self.until(lambda: self.starts()[-1:] == [2], f"both hosts after {why}")

    def part(self, name):
        agent = self.agents["follower" in name]
        # Without the agent's copies that have not become a program yet, and the shells that guard workers.
        others = [command(agent.pid), b""]
        workers = [pid for pid in children(agent.pid)
                   if command(pid) not in others and b"trireme-guard" not in command(pid)]
        return {"host": [agent.pid, *workers], "agent": [agent.pid], "worker": workers}[name.split()[-1]]

    def pause(self, name, seconds):
        """The process ids of its workers before."""
        workers = [pid for pid in self.part(name.rsplit(" ", 1)[0] + " worker")]
        stopped = self.part(name)
        freeze(stopped)
        time.sleep(seconds)
        go_on(stopped)
        return workers

    def stop(self):
        everyone = [pid for agent in self.agents for pid in [agent.pid, *children(agent.pid)]]
        self.agents[0].terminate()
        codes = [agent.wait(timeout=PATIENCE) for agent in self.agents]
        self.assertEqual(codes, [0, 0], self.said())
        self.until_gone(everyone)

    def until_gone(self, pids):
        deadline = time.monotonic() + PATIENCE
        while left := {pid: command(pid) for pid in pids if is_running(pid)}:
            self.assertLess(time.monotonic(), deadline, f"processes are left: {left}\n{self.said()}")
            time.sleep(0.01)


class Writers(Pauses):
    """Programs that know nothing of agents."""

    def prepare(self):
        pass

    def test_no_worker_of_an_epoch_before_lives_on_after_its_host_was_paused(self):
        self.environment["DIR"] = str(self.folder)
        self.start_agents(["sh", "-c", WRITER])
        self.until(lambda: self.starts() == [2] and self.part("the follower's worker"), "the start")
        stale = self.pause("the follower's host", LONG)
        self.until(lambda: len(self.starts()) >= 3 and self.starts()[-1] == 2, "the host is taken back")
        self.until_gone(stale)
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            agent.wait(timeout=PATIENCE)
        self.assertIn("its workers are killed", self.said())


    def test_workers_of_a_stopped_agent_end_unless_it_leads(self):
        self.environment["DIR"] = str(self.folder)
        self.start_agents(["sh", "-c", WRITER])
        self.until(lambda: self.starts() == [2] and self.part("the follower's worker"), "the start")
        leader, follower = self.part("the leader's agent"), self.part("the follower's agent")
        stale = self.part("the follower's worker")
        freeze(follower)
        self.until_gone(stale)  # while their agent is stopped
        self.until(lambda: self.starts()[-1] == 1, "an epoch without the host")
        go_on(follower)
        self.await_both("the follower's agent")
        self.assertIn("its workers are killed", self.outputs[1].read_text())
        self.assertNotIn("signal 9", self.said())
        # Without the leader no other epoch can begin.
        workers = lambda: [self.part("the leader's worker"), self.part("the follower's worker")]
        self.until(lambda: all(workers()), "workers on both hosts")
        kept, others = workers()
        freeze(leader)
        self.until_gone(others)
        time.sleep(LONG - LEASE)
        self.assertEqual([is_running(pid) for pid in kept], [True])
        go_on(leader)
        self.await_both("the leader's agent")
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            agent.wait(timeout=PATIENCE)


class TrainingRun(Pauses):
    def newest_step(self):
        try:
            lines = (self.folder / "run/metrics.jsonl").read_bytes().split(b"\n")[:-1]
            return json.loads(lines[-1])["step"] if lines else 0
        except (OSError, ValueError):
            return 0

    def await_steps(self, count, why):
        step = self.newest_step() + count
        self.until(lambda: self.newest_step() >= step, f"step {step} after {why}")

    def check_run(self):
        """Every step once, of epochs that grow, with the bits of a run that was left in peace on one rank."""
        self.stop()
        metrics, curve = self.metrics(), self.curve()
        self.assertEqual([point[0] for point in curve], list(range(1, len(curve) + 1)))
        epochs = [line["epoch"] for line in metrics]
        self.assertEqual(epochs, sorted(epochs))
        whole = [option for option in OPTIONS if not option.startswith(("--train.steps", "--checkpoint"))]
        control = self.start("train", "tiny.toml", *whole, f"--train.steps={len(curve)}", "--output.folder=whole",
                             "--checkpoint.interval=1000000")
        control.communicate(timeout=8 * TIMEOUT)  # a campaign's run is long
        self.assertEqual(control.returncode, 0)
        self.assertEqual(curve, self.curve("whole"))
        for name in self.checkpoints():
            self.succeed("checkpoint", "verify", f"run/checkpoints/{name}")
        left = [path for path in (self.folder / "run").rglob("*") if ".tmp" in path.name or path.name.startswith(".")]
        self.assertEqual(left, [])
        self.assertEqual(self.segments(), [])

    def start_training(self, names=("leader", "follower")):
        self.start_agents([self.program, "train", "tiny.toml", *OPTIONS], names)
        self.until(lambda: self.newest_step() > 2, "the first steps")


class Training(TrainingRun):
    def test_a_run_goes_on_when_its_leader_was_paused(self):
        self.start_training()
        self.pause("the leader's host", LONG)
        self.until(lambda: len(self.starts()) > 1, "another epoch")
        self.await_both("the leader's host")
        self.await_steps(12, "the leader's host")
        self.check_run()


    def test_the_next_epoch_waits_for_a_rank_0_that_still_has_the_folder(self):
        self.start_training(["leader"])
        held = os.open(self.folder / "run", os.O_RDONLY)
        self.addCleanup(os.close, held)
        stale = threading.Thread(target=fcntl.flock, args=(held, fcntl.LOCK_EX), daemon=True)
        stale.start()  # gets the lock with the end of rank 0
        for worker in self.part("the leader's worker"):
            os.kill(worker, signal.SIGKILL)
        stale.join(timeout=PATIENCE)
        self.until(lambda: f"run is held by process {os.getpid()} of this host" in self.said(), "the wait")
        time.sleep(1)
        self.assertEqual(len(self.starts()), 2)
        fcntl.flock(held, fcntl.LOCK_UN)
        self.await_steps(3, "the wait")
        self.assertEqual(self.metrics()[-1]["epoch"], 2)
        self.agents[0].terminate()
        self.assertEqual(self.agents[0].wait(timeout=PATIENCE), 0, self.said())


class Campaign(TrainingRun):
    """Label long."""

    num_pauses, seed = PAUSES, SEED

    def test_a_run_goes_on_whatever_was_paused(self):
        print(f"TRIREME_TEST_SEED={self.seed}", flush=True)
        drawn = random.Random(self.seed)
        self.table = collections.Counter()
        self.start_training()
        # Each part once, then any.
        names = drawn.sample(PARTS, len(PARTS)) + [drawn.choice(PARTS) for _ in range(self.num_pauses)]
        for name in names:
            print(f"{time.strftime('%X')} step {self.newest_step()}: {name}", flush=True)
            time.sleep(drawn.random() * 0.5)
            self.pause(name, LEASE * drawn.uniform(1.1, 4.5))
            self.await_steps(3, name)
            self.await_both(name)
            self.table[name] += 1
        self.check_run()
        print(f"campaign: {sum(self.table.values())} pauses", flush=True)


if __name__ == "__main__":
    if any(argument.startswith("--pauses") for argument in sys.argv[1:]):
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--pauses", type=int, default=20)
        parser.add_argument("--seed", type=int, default=SEED)
        arguments = parser.parse_args()
        Campaign.num_pauses, Campaign.seed = arguments.pauses, arguments.seed
        campaign = Campaign("test_a_run_goes_on_whatever_was_paused")
        result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite([campaign]))
        for part, count in campaign.table.most_common():
            print(f"| {part} | {count} |")
        sys.exit(not result.wasSuccessful())
    unittest.main()
