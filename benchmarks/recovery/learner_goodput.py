"""Eight learners, one of which is three times slower, and a kill a minute: how much of the training they could do is kept.

Learners get equal parts of a processor (cgroups, root), the slow one a third of such a part, once they train. A learner that
was killed, or a job that ended with it, is started again at once. Kept are the samples in the common weights: of decoupled
learners those that rank 0 counts in its rounds, in which differences of more than one round's steps are counted as of one. The
share is of what all learners would train in that time at their pace, by the median step of the first three that are fast.
At the end decoupled learners go on from their last checkpoint to a last step, and that part is repeated by its log.

    benchmarks/recovery/learner_goodput.py [--seconds 240] [--seed 1] [--folder runs/learner_goodput]
"""

import argparse
import contextlib
import datetime
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import learner_hosts  # noqa: E402
from learner_hosts import Lines  # noqa: E402
from trireme_runs import ROOT, add_arguments, checked, prepare_random_tokens, write_note  # noqa: E402

PLACES, SLOW, SLOWER, EVERY, SAVE, BATCH = 8, 7, 3, 10, 20, 2
SHARE = 0.03  # of a processor, for a learner that is fast: they have it on a machine that does other things too
CONFIG = learner_hosts.CONFIG.format(global_batch=PLACES * BATCH, micro_batch=BATCH, interval=SAVE, keep=2)


class Shares:
    """A part of a processor for each learner."""

    def __enter__(self):
        root = Path("/sys/fs/cgroup")
        self.is_old = (root / "cpu/cpu.cfs_quota_us").exists() or (root / "cpu/tasks").exists()
        base = root / "cpu" if self.is_old else root
        self.groups = [base / f"trireme-goodput-{os.getpid()}-{place}" for place in range(PLACES)]
        for place, group in enumerate(self.groups):
            group.mkdir()
            quota = int(100000 * SHARE / (SLOWER if place == SLOW else 1))
            if self.is_old:
                (group / "cpu.cfs_period_us").write_text("100000")
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} 100000")
        return self

    def add(self, place, pid):
        with contextlib.suppress(ProcessLookupError):
            (self.groups[place] / "cgroup.procs").write_text(str(pid))

    def __exit__(self, *_):
        for group in self.groups:
            for _ in range(100):  # until what was killed is gone
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.05)


class Run:
    """What both ways have in common: processes that are started again, and the time that they have trained."""

    def __init__(self, program, folder, shares):
        self.program, self.folder, self.shares, self.processes, self.limited = program, folder, shares, {}, set()
        folder.mkdir()
        self.common = ["train", folder.parent / "learner.toml", "--threads", 1, f"--data.path={folder.parent}/tokens",
                       f"--outer.every={EVERY}", f"--parallel.learners={PLACES}"]

    def start_process(self, key, words):
        log = open(self.folder / f"{key}.out", "a")
        self.processes[key] = subprocess.Popen(list(map(str, [self.program, *words])), cwd=self.folder, stdout=log, stderr=log,
                                               start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        log.close()

    def limit(self, place, pid):
        if pid not in self.limited:
            self.limited.add(pid)
            self.shares.add(place, pid)

    def end(self):
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Meeting(Run):
    def __init__(self, program, folder, shares, patience):
        super().__init__(program, folder, shares)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.patience = patience
        self.lines = {place: Lines(folder / f"run-{place}/metrics.jsonl") for place in range(PLACES)}
        self.before = {}

    def start(self):
        self.start_process("service", ["meet", "--listen", self.address, "--learners", PLACES, "--lease", 2, "--patience",
                                       self.patience])
        for place in range(PLACES):
            self.start_learner(place)

    def start_learner(self, place):
        self.lines[place].read()
        self.before[place] = len(self.lines[place].all)
        self.start_process(place, [*self.common, f"--outer.meeting={self.address}", f"--outer.place={place}",
                                   f"--output.folder=run-{place}"])

    def poll(self):
        for place in range(PLACES):
            self.lines[place].read()
            if self.processes[place].poll() is not None:
                self.start_learner(place)
            if len(self.lines[place].all) > self.before[place]:
                self.limit(place, self.processes[place].pid)

    def kill(self, place):
        self.processes[place].kill()
        self.processes[place].wait()

    def is_training(self):
        return all(lines.all for lines in self.lines.values())

    def kept(self):
        """Samples of the rounds so far."""
        rounds = [line for line in (self.folder / "service.out").read_text().splitlines() if line.startswith("round of step ")]
        return sum(len(line.split(":")[1].split(";")[0].split(",")) for line in rounds) * EVERY * BATCH

    def steps(self):
        return [line["step_seconds"] for place in range(3) for line in self.lines[place].all[20:] if "learner_loss" not in line]


class Decoupled(Run):
    def __init__(self, program, folder, shares, quorum, save=SAVE):
        super().__init__(program, folder, shares)
        self.common.append(f"--checkpoint.interval={save}")
        self.lines = Lines(folder / "run/metrics.jsonl")
        self.before = 0
        self.words = ["--ranks", PLACES + 1, "--parallel.servers=1", "--outer.method=decoupled", f"--outer.quorum={quorum}",
                      "--outer.grace_seconds=0.5", "--outer.delay=5"]

    def start(self):
        self.lines.read()
        self.before = len(self.lines.all)
        self.start_process("job", [*self.common, *self.words, "--output.folder=run"])

    def ranks(self):
        found = {}
        launcher = self.processes["job"].pid
        with contextlib.suppress(OSError):
            for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                found |= {int(word[5:]): int(pid) for word in variables if word.startswith(b"RANK=")}
        return found

    def poll(self):
        self.lines.read()
        if self.processes["job"].poll() is not None:
            self.start()
        if len(self.lines.all) > self.before:
            for place, pid in self.ranks().items():
                if place < PLACES:
                    self.limit(place, pid)

    def kill(self, place):
        while (pid := self.ranks().get(place)) is None:  # the job has just begun
            self.poll()
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.processes["job"].wait()

    def is_training(self):
        return bool(self.lines.all)

    def kept_lines(self):
        """Of the file: it has nothing that a restart has undone."""
        try:
            return [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def kept(self):
        return sum(line["learners"] for line in self.kept_lines() if "outer_bytes" in line) * EVERY * BATCH

    def steps(self):
        return []

    def replay(self):
        """The steps after the last checkpoint to a last one, and those by their log: (steps, whether losses have the same bits)."""
        self.end()
        newest = sorted((self.folder / "run/checkpoints").glob("step-*"))[-1:]
        first = int(newest[0].name.split("-")[1]) if newest else 0
        if newest:
            shutil.copytree(newest[0], self.folder / "again/checkpoints" / newest[0].name)
        else:
            shutil.rmtree(self.folder / "run")
        command = [self.program, *self.common, *self.words, f"--train.steps={first + SAVE}"]
        os.environ["OMP_NUM_THREADS"] = "1"
        for name, more in (("run", []), ("again", [f"--parallel.replay={self.folder}/run/server-log"])):
            checked([*command, f"--output.folder={self.folder}/{name}", *more])

        def losses(name):
            lines = [json.loads(line, parse_float=str) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
            return [(line["step"], line["loss"]) for line in lines if line["step"] > first]

        return len(losses("run")), losses("run") == losses("again") and len(losses("run")) == SAVE


WAYS = {
    "meeting, rounds wait for all": lambda *common: Meeting(*common, patience=600),
    "meeting, late ones are skipped": lambda *common: Meeting(*common, patience=0.5),
    f"decoupled, quorum 6, saved every {SAVE} steps": lambda *common: Decoupled(*common, quorum=6),
    "decoupled, quorum 6, never saved": lambda *common: Decoupled(*common, quorum=6, save=0),
}


def measure(make, args, name, folder, interval):
    """Samples kept in the time, kills, seconds of the fast ones' steps, and what a replay says."""
    draw = random.Random(args.seed)
    with Shares() as shares:
        run = make(args.trireme.resolve(), folder, shares)
        try:
            run.start()
            while not run.is_training():
                run.poll()
                time.sleep(0.05)
            begin, before, kills = time.time(), run.kept(), 0
            while time.time() < begin + args.seconds:
                if interval and time.time() > begin + interval * (kills + 0.5):
                    run.kill(draw.randrange(PLACES))
                    kills += 1
                run.poll()
                time.sleep(0.02)
            found = {"way": name, "interval": interval, "seconds": time.time() - begin, "kept": run.kept() - before,
                     "kills": kills, "step_seconds": statistics.median(run.steps() or [0])}
            if hasattr(run, "replay"):
                found["replayed_steps"], found["same_bits"] = run.replay()
        finally:
            run.end()
    return found


def table(args, found):
    """Of the pace that meeting learners have by themselves."""
    pace = statistics.median(row["step_seconds"] for row in found if row["step_seconds"])
    possible = (PLACES - 1 + 1 / SLOWER) * BATCH / pace
    text = (f"# Learners with a slow one and a kill a minute, {datetime.date.today()}\n\n{PLACES} learners with {SHARE:g} of a "
            f"processor each, one with a {SLOWER}rd of that; rounds of {EVERY} steps of {BATCH} samples, meeting learners saved every {SAVE} steps; "
            f"{args.seconds:g} s for each row, seed {args.seed}. A fast step takes {pace:.3f} s.\n\n"
            "| | kills | samples/s kept | share of what all could train | replay of the last steps |\n|---|---|---|---|---|\n")
    for row in found:
        rate = row["kept"] / row["seconds"]
        same = f"{row['replayed_steps']} steps, {'same bits' if row['same_bits'] else 'OTHER BITS'}" if "same_bits" in row else ""
        text += f"| {row['way']} | {row['kills']} | {rate:.1f} | {rate / possible:.0%} | {same} |\n"
    return text


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # learners end with it
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interval", type=float, default=60, help="seconds between kills")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs/learner_goodput")
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    prepare_random_tokens(args.trireme, folder)
    (folder / "learner.toml").write_text(CONFIG)
    file = folder / "results.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for interval in (0, args.interval):
        for number, (name, make) in enumerate(WAYS.items()):
            if any((row["way"], row["interval"]) == (name, interval) for row in found):
                continue
            own = folder / f"{number}-{interval:g}"
            shutil.rmtree(own, ignore_errors=True)
            found.append(measure(make, args, name, own, interval))
            with file.open("a") as results:
                results.write(json.dumps(found[-1]) + "\n")
            print(found[-1], file=sys.stderr, flush=True)
    text = table(args, found)
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-learner-goodput.md", text)


if __name__ == "__main__":
    main()
