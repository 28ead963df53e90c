"""A model whose weights, gradients and optimizer states are several times the memory that it may use.

Trains a Llama with ZeRO-3 four ways: in memory without a limit; with weights and gradients on a disk, and with all three,
without a limit; and with all three on a disk in a control group of a fraction of their bytes, page cache included. Prints
the time of a step, the part of it that ranks wait for gathers and sums, the bytes that the ranks read and wrote per step,
the part of the bytes' time on the disk (at the rates that dd reaches past the page cache) that did not make the step
longer, and the most bytes that docs/guide/offload.md allows. Then the limited run once more, with a checkpoint after every
second step: all its processes are killed with SIGKILL after the third, and it resumes. The losses of all runs must have
the same bits. Writes a dated note to benchmarks/results/. Needs the right to make control groups.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory_limit import group_of
from trireme_runs import ROOT, add_arguments, checked, prepare_random_tokens, write_note

PARTS = ["--offload.parameters=disk", "--offload.gradients=disk"]
DISK = [*PARTS, "--offload.optimizer=disk"]
BLOCK = 512  # bytes of ru_inblock
BYTES_PER_PARAMETER = 16  # fp32 with AdamW


def command_of(args, folder, name, options, limit):
    command = [args.trireme.resolve(), "train", folder / "bench.toml", f"--output.folder={folder / name}", "--ranks",
               args.ranks, "--threads", max(1, (os.cpu_count() or 1) // args.ranks),
               *(f"--{option}" for option in args.options), *options]
    if limit is not None:
        command = [sys.executable, ROOT / "benchmarks" / "memory_limit.py", limit >> 20, *command]
    return list(map(str, command))


def steps_of(folder, name):
    file = folder / name / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def run(args, folder, name, options, limit=None):
    """The steps, and the bytes that the ranks read and wrote per step."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    checked(command_of(args, folder, name, options, limit))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    steps = steps_of(folder, name)
    moved = [(getattr(after, key) - getattr(before, key)) * BLOCK / len(steps) for key in ("ru_inblock", "ru_oublock")]
    return steps, moved


def killed_run(args, folder, name, options, limit):
    """The steps of a run whose processes are killed after its third step, and that resumes."""
    command = command_of(args, folder, name, [*options, "--checkpoint.interval=2"], limit)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(steps_of(folder, name)) < 3:
            if process.poll() is not None:
                sys.exit("bench: the run ended before its third step")
            time.sleep(0.05)
        for pid in (group_of(process.pid) / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # ranks end with their launcher
                os.kill(int(pid), signal.SIGKILL)
    saved = max(int(file.name.split("-")[1]) for file in (folder / name / "checkpoints").glob("step-*"))
    before = len(steps_of(folder, name))
    if f"resume  after step {saved}," not in checked(command):
        sys.exit(f"bench: the killed run did not resume after step {saved}")
    print(f"bench: killed with {before} steps, resumed after step {saved}", file=sys.stderr)
    return steps_of(folder, name)


def disk_rates(folder, num_mebibytes=1024):
    """Bytes per second that the disk under the folder reads and writes, past the page cache."""
    def rate(*options):
        result = subprocess.run(["dd", *options, "bs=16M", f"count={num_mebibytes // 16}"], capture_output=True, text=True,
                                check=True, env={"LC_ALL": "C"})
        return num_mebibytes * 2**20 / float(re.search(r"copied, ([\d.e-]+) s", result.stderr).group(1))

    file = folder / "rates"
    write_rate = rate("if=/dev/zero", f"of={file}", "oflag=direct")
    read_rate = rate(f"if={file}", "of=/dev/null", "iflag=direct")
    file.unlink()
    return read_rate, write_rate


def most_moved(parameters, microbatches):
    """Bytes per step over all ranks that are read and written where nothing stays in memory: docs/guide/offload.md."""
    weights = gradients = parameters * 4
    states = parameters * 8
    read = weights * (2 * microbatches + 1) + gradients * (microbatches + 2) + states
    return read, weights + gradients * microbatches + states


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=512, help="of a sequence")
    parser.add_argument("--options", nargs="*", default=[], help="for every run, written key=value")
    parser.add_argument("--fraction", type=float, default=0.25, help="of the bytes of weights, gradients and states")
    args = parser.parse_args()
    D, F, V = args.width, args.width * 11 // 4, 8192
    with tempfile.TemporaryDirectory(prefix="trireme-bench-", dir=ROOT / "build") as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder)
        (folder / "bench.toml").write_text(
            f'[model]\nfamily = "llama"\nvocab_size = {V}\nsequence_length = {args.tokens}\nlayers = {args.layers}\n'
            f'width = {D}\nheads = {D // 64}\nkv_heads = {D // 64}\nffn_width = {F}\n[data]\npath = "{folder / "tokens"}"\n'
            f"[train]\nmicro_batch = 1\nglobal_batch = {args.ranks * args.microbatches}\nsteps = {args.steps}\n"
            '[optimizer]\nwarmup_steps = 0\n[checkpoint]\ninterval = 0\n[parallel]\nzero = 3\ngathered_units = 1\n'
            f"[offload]\nbuffer_bytes = {16 << 20}\n")
        parameters = args.layers * (4 * D * D + 3 * D * F + 2 * D) + 2 * V * D + D
        whole = parameters * BYTES_PER_PARAMETER
        limit = int(whole * args.fraction)
        read_rate, write_rate = disk_rates(folder)
        rows, curves, in_memory = [], [], None
        for title, options, at_most in (("in memory", [], None), ("weights and gradients on a disk", PARTS, None),
                                        ("all on a disk", DISK, None),
                                        (f"all on a disk, {limit >> 20} MiB", DISK, limit)):
            steps, (read, written) = run(args, folder, title.replace(" ", "-").replace(",", ""), options, at_most)
            curves.append([(step["loss"], step["grad_norm"]) for step in steps])
            seconds = statistics.median(step["step_seconds"] for step in steps[1:])
            waiting = statistics.median(step["communication_fraction"] for step in steps[1:])
            in_memory = in_memory or (seconds, read, written)
            initial = parameters * 4 / args.steps if options else 0  # weights that the start writes
            on_disk = (read - in_memory[1]) / read_rate + (written - initial - in_memory[2]) / write_rate
            hidden = f"{100 * (1 - (seconds - in_memory[0]) / on_disk):.0f} %" if options else ""
            rows.append(f"| {title} | {seconds:.2f} | {100 * waiting:.0f} % | {read / 2**20:.0f} | {written / 2**20:.0f} | "
                        f"{hidden} |")
            print(f"bench: {title} done: {seconds:.2f} s", file=sys.stderr)
        steps = killed_run(args, folder, "killed", DISK, limit)
        curves.append([(step["loss"], step["grad_norm"]) for step in steps])
        if any(curve != curves[0] for curve in curves):
            sys.exit("bench: the losses differ")
        read, written = most_moved(parameters, args.microbatches)
        rows.append(f"| at most, by the formula | | | {read / 2**20:.0f} | {written / 2**20:.0f} | |")
    head = "| weights, gradients and states | s per step | waiting | MiB read per step | MiB written per step | hidden |"
    table = "\n".join([head, "|---|---|---|---|---|---|", *rows])
    print(table)
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-offload-limit.md",
                   f"# A model of four times the memory, {day}\n\n{parameters / 1e6:.0f} M parameters in fp32 with AdamW, ZeRO-3, "
                   f"ranks: {args.ranks}, {args.microbatches} microbatches of one sequence of {args.tokens} tokens"
                   f"{''.join(', ' + option for option in args.options)}.\nWeights, gradients and states are {whole >> 20} MiB. "
                   f"Medians of the steps after the first; all losses have the\nsame bits, also those of the limited run killed "
                   f"with SIGKILL after its third step. The disk reads {read_rate / 1e9:.1f} and\nwrites {write_rate / 1e9:.1f} "
                   f"GB/s.\n\n`waiting`: the part of a step in which a rank waits for gathers and sums, reads of its own part "
                   f"included.\n`hidden`: the part of the bytes' time on the disk that did not make the step longer.\n\n"
                   f"{table}\n\nRepeat: `.venv/bin/python benchmarks/offload_limit.py`.\n")


if __name__ == "__main__":
    main()
