"""Seconds from a kill to the next finished step, `trireme run` beside torchrun.

The demo's model on two ranks, a checkpoint every ten steps (in memory there, a file here). After some 15 steps one
worker gets `kill -9`; the time ends when a step that was not finished before is in the run's metrics. By turns, --kills
times each. With --hosts, agents run in network namespaces (root): one of two hosts is killed whole, and joins again.
With --torchft, also two replicas under torchft, of which the survivor goes on with half the batch.

    benchmarks/recovery/recovery.py [--kills 20] [--hosts] [--torchft PYTHON] [--no-note]
"""

import argparse
import datetime
import functools
import json
import math
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "train_vs_pytorch"))
from report import machine, markdown  # noqa: E402
from trireme_runs import ROOT, add_arguments, write_note  # noqa: E402

PATIENCE = 40  # seconds for a step to be finished; longer is a hang


class Job:
    """Processes that train, and the file in which each finished step is a line."""

    def __init__(self, steps_file):
        self.steps_file, self.processes = Path(steps_file), []

    def start(self, command, **options):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
                                   start_new_session=True, **options)
        os.set_blocking(process.stdout.fileno(), False)
        self.processes.append(process)
        return process

    def newest_step(self, least=1):
        """The newest finished step, 0 before the first. least: replicas that took part, where lines name them."""
        try:
            with open(self.steps_file, "rb") as file:
                file.seek(max(0, os.path.getsize(self.steps_file) - 8192))
                lines = file.read().split(b"\n")[:-1]
        except OSError:
            return 0
        for line in reversed(lines):
            try:
                values = json.loads(line)
                if values.get("replicas", least) >= least:
                    return values["step"]
            except (ValueError, KeyError):
                continue
        return 0

    def wait_for(self, step, least=1):
        """Seconds until the step is finished."""
        start = time.perf_counter()
        while self.newest_step(least) < step:
            for process in self.processes:
                try:
                    process.stdout.read()
                except OSError:
                    pass
            if time.perf_counter() - start > PATIENCE:
                raise RuntimeError(f"step {step} was not finished within {PATIENCE} s")
            time.sleep(0.005)
        return time.perf_counter() - start

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def environment_of(pid):
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(word.split(b"=", 1) for word in text.split(b"\0") if b"=" in word)


def workers(launcher):
    """Process ids of the launcher's ranks. One that waited for its first epoch has no RANK."""
    found = []
    for task in Path(f"/proc/{launcher.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            variables = environment_of(child)
            if b"RANK" in variables or b"TRIREME_AGENT_FD" in variables:
                found.append(int(child))
    return sorted(found)


def trireme_command(args, folder):
    return [args.trireme, "run", "--nproc-per-node", 2, "--max-restarts", 1000, "--", args.trireme, "train",
            "examples/demo.toml", f"--output.folder={folder}", "--train.steps=100000", "--checkpoint.interval=1000",
            "--checkpoint.memory_interval=10"]


def torchrun_command(folder):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1000",
            Path(__file__).parent / "torchrun_peer.py", folder]


# Replicas meet here. A replica counts as lost once it has not been heard of for `beat` milliseconds (torchft: 5000).
LIGHTHOUSE = """
import sys, time
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind="127.0.0.1:" + sys.argv[1], min_replicas=1, join_timeout_ms=10000, quorum_tick_ms=100,
                          heartbeat_timeout_ms=int(sys.argv[2]))
time.sleep(1e6)
"""


def start_torchft(python, job, beat):
    """The launchers of both replicas. Each restarts its replica, which takes its states from the other one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    job.start([python, "-c", LIGHTHOUSE, port, beat])
    return [job.start([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "--max-restarts=1000",
                       Path(__file__).parent / "torchft_peer.py", job.steps_file.parent, replica, 1], env=environment)
            for replica in range(2)]


def kill_workers(job, launchers, count):
    """(seconds from a kill of a worker to the next finished step, to the next one of all workers), for each kill. A job
    that hangs gives inf, and no more."""
    draw = random.Random(1)
    for _ in range(count):
        job.wait_for(job.newest_step() + 12 + draw.randrange(10))
        newest = job.newest_step()
        os.kill(draw.choice([pid for launcher in launchers for pid in workers(launcher)]), signal.SIGKILL)
        try:
            seconds = job.wait_for(newest + 1)
            yield seconds, seconds + job.wait_for(newest + 1, least=2)
        except RuntimeError:
            yield math.inf, math.inf
            return


class Hosts:
    """Two hosts on a bridge, each a network namespace with a /dev/shm of its own."""

    def __init__(self, count):
        self.count, self.names = count, [f"trireme-bench-{os.getpid()}-{i}" for i in range(count)]

    def __enter__(self):
        run = lambda *words: subprocess.run(["ip", *words], check=True)  # noqa: E731
        run("link", "add", "tribench", "type", "bridge")
        run("link", "set", "tribench", "up")
        for i, name in enumerate(self.names):
            run("netns", "add", name)
            run("link", "add", f"tribench{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("link", "set", f"tribench{i}", "master", "tribench", "up")
            run("-n", name, "address", "add", f"10.231.80.{i + 1}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                run("-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name])
        subprocess.run(["ip", "link", "delete", "tribench"])

    def command(self, host, words):
        """The words on that host; everything there dies with the process."""
        script = 'mount -t tmpfs -o size=512m tmpfs /dev/shm; exec "$@"'
        return ["ip", "netns", "exec", self.names[host], "unshare", "--mount", "--pid", "--fork", "--kill-child",
                "--mount-proc", "sh", "-c", script, "sh", *words]


def kill_hosts(args, folder, count):
    """(seconds from the kill of a host to the next step, seconds from its return to the first step with it)."""
    with Hosts(2) as hosts:
        job = Job(folder / "metrics.jsonl")
        environment = {**os.environ, "TRIREME_TOKEN": "a benchmark's token"}

        def start(host):
            words = [args.trireme, "run", "--nproc-per-node", 1, "--nnodes", "1:2", "--rdzv-endpoint",
                     "10.231.80.1:29444", "--node-rank", host, "--host-name", f"host{host}", "--max-restarts", 1000,
                     "--last-call", 30, "--", *trireme_command(args, folder)[7:], "--checkpoint.replicas=1"]
            return job.start(hosts.command(host, words), env=environment, cwd=ROOT)

        try:
            start(0)
            other = start(1)
            for _ in range(count):
                job.wait_for(job.newest_step() + 25)
                newest = job.newest_step()
                os.killpg(other.pid, signal.SIGKILL)
                lost = job.wait_for(newest + 1)
                job.wait_for(job.newest_step() + 12)
                begin, epochs = time.perf_counter(), epoch_of(folder)
                other = start(1)
                while epoch_of(folder) == epochs:
                    time.sleep(0.01)
                    if time.perf_counter() - begin > PATIENCE:
                        raise RuntimeError("the host did not come back")
                job.wait_for(job.newest_step() + 1)
                yield lost, time.perf_counter() - begin
        finally:
            job.end()


def epoch_of(folder):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return max((json.loads(line).get("epoch", 0) for line in lines if '"start"' in line), default=0)


def cost(args, root, rounds=5, steps=110):
    """Medians of the mean seconds of a step: without an agent, and with it and memory checkpoints every ten steps."""
    common = ["train", "examples/demo.toml", f"--train.steps={steps}", "--checkpoint.interval=1000"]
    kinds = {"train --ranks 2": [args.trireme, *common, "--ranks", 2],
             "run, memory_interval = 10": [args.trireme, "run", "--nproc-per-node", 2, "--", args.trireme, *common,
                                           "--checkpoint.memory_interval=10"]}
    found = {name: [] for name in kinds}
    for turn in range(rounds):
        for name, command in list(kinds.items())[::1 if turn % 2 == 0 else -1]:
            folder = root / f"cost-{turn}-{len(found[name])}-{name[:3]}"
            subprocess.run([str(word) for word in [*command, f"--output.folder={folder}"]], cwd=ROOT, check=True,
                           capture_output=True)
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            # From the tenth step on; wall time, so that what lies between steps counts.
            seconds = sum(line["step_seconds"] + line.get("checkpoint_stall_seconds", 0) for line in lines[10:])
            found[name].append(seconds / len(lines[10:]))
    return {name: statistics.median(values) for name, values in found.items()}


def summary(name, values):
    return [name, str(len(values)), f"{statistics.median(values):.2f}", f"{max(values):.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cost", action="store_true", help="also measure what an agent costs while nothing fails")
    parser.add_argument("--hosts", action="store_true", help="also kill hosts and let them join (needs root)")
    parser.add_argument("--torchft", metavar="PYTHON", help="a Python that has torchft")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-recovery-") as name:
        root = Path(name)
        ours, theirs = Job(root / "trireme/metrics.jsonl"), Job(root / "torchrun/steps.jsonl")
        (root / "torchrun").mkdir()
        starts = {"trireme run": (ours, lambda job: [job.start(trireme_command(args, root / "trireme"), cwd=ROOT)]),
                  "torchrun": (theirs, lambda job: [job.start(torchrun_command(root / "torchrun"), cwd=ROOT)])}
        for beat in (5000, 1000) if args.torchft else ():
            name = f"torchft, heartbeats within {beat // 1000} s"
            starts[name] = (Job(root / name / "steps.jsonl"), functools.partial(start_torchft, args.torchft, beat=beat))
        results = {title: [] for title in starts}
        # By turns, and one at a time: they have two cores.
        for turn in range(0, args.kills, 5):
            count = min(5, args.kills - turn)
            for title, (job, start) in starts.items():
                if title.startswith("torchft"):  # it keeps no file to go on from
                    shutil.rmtree(job.steps_file.parent, ignore_errors=True)
                    job.steps_file.parent.mkdir()
                launchers = start(job)
                try:
                    for seconds in kill_workers(job, launchers, count):
                        results[title].append(seconds)
                        print(f"{title}: {seconds[0]:.2f} s, all workers {seconds[1]:.2f} s", file=sys.stderr)
                finally:
                    job.end()
                    job.processes.clear()
        rows = [summary(f"{title}: a worker lost", [first for first, _ in values]) for title, values in results.items()]
        rows += [summary(f"{title}: until both take part again", [both for _, both in values])
                 for title, values in results.items() if title.startswith("torchft")]
        story = (root / "trireme/events.jsonl").read_text().splitlines()
        recoveries = [json.loads(line)["seconds"] for line in story if '"recovery"' in line and '"epoch":1,' not in line]
        rows.append(summary("trireme run, by its own events", recoveries))
        if args.hosts:
            shutil.rmtree(root / "trireme")
            pairs = list(kill_hosts(args, root / "trireme", max(1, args.kills // 2)))
            rows.append(summary("trireme run: a host of two lost", [pair[0] for pair in pairs]))
            rows.append(summary("trireme run: a joining host used", [pair[1] for pair in pairs]))
        costs = cost(args, root) if args.cost else {}
    table = markdown(["event", "times", "median s", "worst s"], rows)
    if costs:
        table += "\n\n" + markdown(["what", "seconds per step, median"], [[name, f"{value:.4f}"] for name, value in costs.items()])
    if args.json:
        print(json.dumps(results))
    else:
        print(table)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-recovery.md",
                   f"# Seconds from a kill to the next finished step\n\n{machine()}\n\n{table}\n")


if __name__ == "__main__":
    main()
