"""Private memory of a run's ranks from their start to the end of the first step, as a plot.

Trains one large Llama for one step in each of several ways, and samples RssAnon of each rank's /proc/PID/status; a curve
is the largest rank's. With ZeRO-3 each rank draws only the parts that it owns; without ZeRO it draws the whole model.
--program NAME=PATH also runs other builds of the program, each with ZeRO-3. Gradients are in shared memory. Prints a table, and writes it to a dated note in benchmarks/results/ and the curves to --svg.
"""

import argparse
import datetime
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trireme_runs import ROOT, prepare_random_tokens, write_note

sys.path.insert(0, str(ROOT / "tools"))
from svg_plot import COLOURS, Curve, draw  # noqa: E402

PERIOD = 0.05  # seconds between samples
STATES = 16  # bytes per parameter of fp32 weights, gradients and AdamW's states


def descendants(process_id):
    """Process ids of its children and theirs."""
    found = []
    for task in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def private_bytes(process_id):
    try:
        for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def sample(command, metrics):
    """[(seconds, bytes of the largest rank)] until the first step is in `metrics`; then waits for the program's end."""
    points = []
    start = time.monotonic()
    with subprocess.Popen(list(map(str, command)), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            seconds = time.monotonic() - start
            points.append((seconds, max(map(private_bytes, [process.pid, *descendants(process.pid)]))))
            time.sleep(PERIOD)
        output = process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{output}")
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=ROOT / "build/release/bin/trireme", type=Path)
    parser.add_argument("--program", action="append", default=[], metavar="NAME=PATH", help="another build")
    parser.add_argument("--zero", type=int, nargs="+", default=[3], help="of the first program")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--svg", type=Path, default=ROOT / "docs/images/start_memory.svg")
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")
    args = parser.parse_args()

    runs = [(f"zero {zero}", args.trireme.resolve(), zero) for zero in args.zero]
    for text in args.program:
        name, _, path = text.partition("=")
        runs.append((name, Path(path).resolve(), 3))
    heads, ffn, vocabulary = args.width // 64, args.width * 11 // 4, 1024
    per_layer = 4 * args.width**2 + 3 * args.width * ffn
    parameters = args.layers * per_layer + 2 * vocabulary * args.width
    rows, curves = [], []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder, 1 << 18)
        (folder / "bench.toml").write_text(f'[model]\nfamily = "llama"\nvocab_size = {vocabulary}\n')
        for i, (label, program, zero) in enumerate(runs):
            points = sample([program, "train", folder / "bench.toml", f"--output.folder={folder / str(i)}",
                             "--checkpoint.interval=0", f"--ranks={args.ranks}", "--threads=1", f"--parallel.zero={zero}",
                             f"--data.path={folder / 'tokens'}", "--train.steps=1", "--train.micro_batch=1",
                             f"--train.global_batch={args.ranks}", "--model.sequence_length=32",
                             f"--model.layers={args.layers}", f"--model.width={args.width}", f"--model.heads={heads}",
                             f"--model.kv_heads={heads}", f"--model.ffn_width={ffn}"],
                            folder / str(i) / "metrics.jsonl")
            peak = max(size for _, size in points)
            kept = {3: STATES / args.ranks, 2: 4 + 12 / args.ranks, 1: 8 + 8 / args.ranks, 0: STATES}[zero] * parameters
            rows.append(f"| {label} | {kept / 2**20:.0f} | {peak / 2**20:.0f} | {points[-1][0]:.1f} s |")
            curves.append(Curve([(x, y / 2**30) for x, y in points], COLOURS[i % len(COLOURS)], label))
            print(f"bench: {label} done", file=sys.stderr)
    head = ["| | weights, gradients and states, MiB | peak, MiB | until the first step's end |", "|---|---|---|---|"]
    table = "\n".join([*head, *rows])
    print(table)
    high = max(y for curve in curves for _, y in curve.points) * 1.05
    args.svg.write_text(draw(curves, 0, high, f"private memory of the largest of {args.ranks} ranks, GiB",
                             x_title="seconds after the start"))
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-start-memory.md",
                   f"# Memory from the start to the first step, {day}\n\nA Llama of {parameters / 1e6:.0f} M parameters in fp32, "
                   f"{args.layers} layers of width {args.width}, one step of one sequence of 32\nper rank on {args.ranks} ranks; "
                   "private memory (`RssAnon`) of the largest rank, sampled every 50 ms.\n\n"
                   f"{table}\n\n![memory over time](../../docs/images/start_memory.svg)\n\n"
                   "Repeat: `.venv/bin/python benchmarks/start_memory.py`.\n")


if __name__ == "__main__":
    main()
