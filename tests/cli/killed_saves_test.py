"""A run that saves at every step in the background, killed at random instants, on disks that fill and are damaged.

Each case draws compression, ZeRO's stage and whether chunks are shared with another run, and keeps two checkpoints.
After the kill: every checkpoint that was reported as saved is whole or two newer ones are; the same command goes on from
the newest whole one and ends with the bits of a run that was left in peace; nothing else is left behind.

    tests/cli/killed_saves_test.py --kills 200 --seed 19

prints the table of benchmarks/results/2026-11-25-killed-saves.md
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

os.environ.setdefault("TRIREME_PROGRAM", str(pathlib.Path(__file__).parents[2] / "build/release/bin/trireme"))
from program import TIMEOUT, ProgramTest, children, freeze, is_running  # noqa: E402

SEED = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000))
KILLS = 8
DONE, USER, LOST, CHECKPOINT = 0, 2, 3, 4
STEPS, KEEP = 16, 2
PERIOD = 0.15  # seconds; a step with its save on a busy machine
FAULTS = ["one rank killed", "the launcher killed", "all killed at once", "the disk fills, then all killed",
          "all killed, then a file cut short", "all killed, then a bit flipped"]
COLUMNS = ["kills", "during a save", "during a removal", "reported saves", "checkpoints left", "of these damaged",
           "resumed from the newest", "from an earlier one", "none whole: refused"]


class KilledSaves(ProgramTest):
    """The disk that fills is a small file system of its own, which takes root."""

    def setUp(self):
        super().setUp()
        print(f"TRIREME_TEST_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)
        self.table = {fault: collections.Counter() for fault in FAULTS}

    def command(self, run, *options, steps=STEPS):
        # A fifth of the weights stays as it is, so that every save finds something to link.
        return ["train", "tiny.toml", "--ranks", 2, f"--train.steps={steps}", "--train.global_batch=8",
                "--train.micro_batch=2", "--optimizer.schedule=constant", "--optimizer.groups=*embed*: rate=0",
                "--parallel.gradient_order=rank-first",
                "--checkpoint.interval=1", f"--checkpoint.keep={KEEP}", f"--output.folder={run}", *options]

    def draw_options(self, base):
        options = [f"--checkpoint.compression={self.random.choice(['none', 'zstd'])}",
                   f"--parallel.zero={self.random.randrange(4)}"]
        return options + [f"--checkpoint.share={base}"] if self.random.random() < 0.5 else options

    def start_until_instant(self, command, run):
        """A running launcher and its ranks, at a random instant of the run."""
        process = self.start(*command)
        # One run in ten not even that far: it starts.
        metrics, steps = self.folder / run / "metrics.jsonl", self.random.randrange(STEPS - 2)
        if self.random.random() < 0.9:
            while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= steps):
                time.sleep(0.001)
        time.sleep(self.random.uniform(0, PERIOD))
        ranks = children(process.pid) if process.poll() is None else []
        return process, ranks

    def fill(self):
        """Takes all room of the small disk but a random rest; the file that has it."""
        room = self.random.choice([0, self.random.randrange(1 << 20)])
        path = self.disk / "ballast"
        with open(path, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while file.write(bytes(1 << 16)):
                    pass
            file.truncate(max(0, file.tell() - room))
        return path

    def kill(self, fault, process, ranks, row):
        """Kills at this instant; what lay in the run's folder then."""
        pids = [process.pid, *ranks]
        freeze(pids)
        names = self.names_in_checkpoints()
        row["during a save"] += any(name.endswith(".tmp") for name in names)
        row["during a removal"] += any(name.endswith(".removed") for name in names)
        victims = {"one rank killed": ranks and [self.random.choice(ranks)], "the launcher killed": [process.pid]}
        for pid in victims.get(fault, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def names_in_checkpoints(self):
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self.folder / self.run_name / "checkpoints"))
        return []

    def assert_gone(self, pids):
        limit = time.monotonic() + TIMEOUT
        while any(map(is_running, pids)):
            self.assertLess(time.monotonic(), limit, "a process outlives the run")
            time.sleep(0.005)

    def saved_steps(self):
        return {int(name[5:]): self.folder / self.run_name / "checkpoints" / name
                for name in self.names_in_checkpoints()
                if name.startswith("step-")}

    def is_whole(self, folder):
        result = self.run_program("checkpoint", "verify", folder)
        self.assertIn(result.returncode, (DONE, CHECKPOINT), result.stderr)
        return result.returncode == DONE

    def damage(self, fault, folder):
        """Damages a file of a checkpoint, and of all that link it; what mends it."""
        path = self.random.choice(sorted(folder.iterdir()))
        before = path.read_bytes()
        if fault == "all killed, then a file cut short":
            os.truncate(path, self.random.randrange(len(before)))
        else:
            changed = bytearray(before)
            changed[self.random.randrange(len(before))] ^= 1 << self.random.randrange(8)
            path.write_bytes(changed)
        return lambda: path.write_bytes(before)

    def check_case(self, number):
        fault = FAULTS[number % len(FAULTS)]
        row = self.table[fault]
        fills = fault == "the disk fills, then all killed"
        place = "disk/" if fills or self.random.random() < 0.25 else ""
        self.run_name, base = f"{place}run-{number}", f"{place}base-{number}"
        shutil.copytree(self.folder / "base", self.folder / base)
        options = self.draw_options(base)
        command = self.command(self.run_name, *options)
        on_error = [f"--checkpoint.on_error={self.random.choice(['stop', 'warn'])}"] if fills else []
        process, ranks = self.start_until_instant([*command, *on_error], self.run_name)
        ballast = None
        if fills:
            ballast = self.fill()
            time.sleep(self.random.uniform(0, 0.3))
        row["kills"] += 1
        self.kill(fault, process, ranks, row)
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertIn(process.returncode, (DONE, LOST, -signal.SIGKILL, *([USER] if fills else [])), errors)
        self.assert_gone(ranks)
        if ballast:
            ballast.unlink()
        if "--checkpoint.share" in str(options) and self.random.random() < 0.5:
            shutil.rmtree(self.folder / base)

        reported = [int(step) for step in re.findall(r"^saved .*/step-(\d+) ", output, re.MULTILINE)]
        left = self.saved_steps()
        row["reported saves"] += len(reported)
        row["checkpoints left"] += len(left)
        for step in reported:
            self.assertTrue(step in left or sum(other > step for other in left) >= KEEP,
                            f"step {step} was reported as saved, and {sorted(left)} are left")
        mend = None
        if left and fault.startswith("all killed, then"):
            mend = self.damage(fault, left[max(left)])
        whole = [step for step, folder in left.items() if self.is_whole(folder)]
        row["of these damaged"] += len(left) - len(whole)
        if not mend:
            self.assertEqual(whole, list(left), "damaged by a kill")
        self.resume(command, left, whole, mend, row)
        for folder in (self.run_name, base):
            shutil.rmtree(self.folder / folder, ignore_errors=True)

    def resume(self, command, left, whole, mend, row):
        if left and not whole:
            row["none whole: refused"] += 1
            self.fail_with(CHECKPOINT, ["checkpoints"], *command)
            self.assertEqual(self.saved_steps().keys(), left.keys())
            mend()
            whole = list(left)
        elif left:
            row["resumed from the newest" if max(whole) == max(left) else "from an earlier one"] += 1
        output = self.succeed(*command)
        self.assertEqual(re.findall(r"^resume  after step (\d+)", output, re.MULTILINE),
                         [str(max(whole))] if whole else [])
        self.assertEqual(len(re.findall(r"^resume  DAMAGED", output, re.MULTILINE)),
                         sum(step > max(whole) for step in left) if whole else 0)
        self.assertEqual(self.curve(self.run_name), self.curve("reference"))
        # And the weights' and the optimizer's bits.
        last = f"checkpoints/step-{STEPS:06}"
        compared = self.run_program("checkpoint", "diff", f"{self.run_name}/{last}", f"reference/{last}")
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)
        names = self.names_in_checkpoints()
        self.assertEqual(len(names), KEEP, names)
        # The last one was read whole above. A run that had ended saves nothing, so damage to the one before stays.
        had_ended = STEPS in whole
        stays_damaged = had_ended and STEPS - 1 in left and STEPS - 1 not in whole
        self.assertEqual(self.is_whole(self.saved_steps()[STEPS - 1]), not stays_damaged)
        self.links += any((self.folder / self.run_name).rglob("shared-*"))
        self.assertEqual(self.segments(), [])
        self.launchers.clear()

    def test_whatever_was_reported_as_saved_loads(self):
        self.succeed(*self.command("base", steps=4))
        self.succeed(*self.command("reference"))
        self.links = 0
        for number in range(KILLS):
            with self.subTest(kill=number, seed=SEED):
                self.check_case(number)
            print(f"\r{number + 1}/{KILLS} kills", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        self.assertGreater(self.links, 0, "no save has linked a file")
        self.assertEqual(os.listdir(self.folder / "tmp"), [])
        self.print_table()

    def print_table(self):
        total = sum(self.table.values(), collections.Counter())
        print(f"| fault | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
        for fault, row in [*self.table.items(), ("all", total)]:
            print(f"| {fault} | {' | '.join(str(row[column]) for column in COLUMNS)} |")
        print(f"campaign: {total['kills']} kills of runs that save at every step", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=KILLS, help=f"({KILLS})")
    parser.add_argument("--seed", type=int, default=SEED, help="of all that is drawn (TRIREME_TEST_SEED, or the time)")
    args, rest = parser.parse_known_args()
    KILLS, SEED = args.kills, args.seed
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
