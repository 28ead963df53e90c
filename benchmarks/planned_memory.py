"""Memory by kind: what the planner expects of a run beside what the ledger of the run has measured, and whether the ledger
explains the growth of resident memory.

Trains one Llama for a few steps in each layout that --ranks allows and prints, for each, the planned and the measured
bytes of every kind and their sum at the peak, and how far the ledger's sum is from the growth of the largest rank's
resident memory. Growth is the peak above that of a small model in the same layout, with the ledgers'
difference beside it. Prints a table and writes a dated note to benchmarks/results/.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, SMALL_LLAMA, add_arguments, prepare_random_tokens, shape, write_note

KINDS = ["weights", "gradients", "states", "activations", "gathered", "buckets", "other"]
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def layouts(ranks):
    """Name and options of each layout; micro_batch and T vary what activations weigh."""
    for zero in range(4):
        for count in (1, 4):
            yield f"zero {zero}, {count} microbatches", [f"--parallel.zero={zero}", f"--train.global_batch={ranks * count}"]
    bf16 = ["--train.precision=bf16"]
    long = ["--model.sequence_length=512", "--train.micro_batch=4"]
    for zero in (0, 1, 2, 3):
        at = [f"--parallel.zero={zero}", f"--train.global_batch={ranks * 2}"]
        yield f"zero {zero}, bf16", [*at, *bf16]
        yield f"zero {zero}, T 512 x 4", [f"--parallel.zero={zero}", f"--train.global_batch={ranks * 4}", *long]
        yield f"zero {zero}, T 512 x 4, full recompute", [f"--parallel.zero={zero}", f"--train.global_batch={ranks * 4}",
                                                          *long, "--train.recompute=full"]
    yield "tensor 2", ["--parallel.tensor=2", "--train.global_batch=4", *long]
    yield "pipeline 2, 4 microbatches", ["--parallel.pipeline=2", "--train.global_batch=16", *long]
    yield "context 2", ["--parallel.context=2", "--train.global_batch=4", *long]
    yield "zero 1, int8 states", ["--parallel.zero=1", f"--train.global_batch={ranks}", "--optimizer.state_dtype=int8"]
    yield "zero 3, states on a disk", ["--parallel.zero=3", f"--train.global_batch={ranks}", "--offload.optimizer=disk"]
    for zero in (0, 2, 3):
        yield (f"zero {zero}, 4 microbatches, microbatch-first",
               [f"--parallel.zero={zero}", f"--train.global_batch={ranks * 4}", "--parallel.gradient_order=microbatch-first"])
    for zero in range(4):
        yield (f"zero {zero}, 4 microbatches, reproducible",
               [f"--parallel.zero={zero}", f"--train.global_batch={ranks * 4}", "--train.reproducible=true"])
    for zero, dtype in ((1, "bf16"), (2, "int8"), (3, "int8")):
        yield (f"zero {zero}, {dtype} states",
               [f"--parallel.zero={zero}", f"--train.global_batch={ranks}", f"--optimizer.state_dtype={dtype}"])
    plain = [f"--train.global_batch={ranks * 4}", *long]
    selective, full, disk = "--train.recompute=selective", "--train.recompute=full", "--offload.activations=disk"
    for modules in ("attention", "feed_forward"):
        yield f"T 512 x 4, selective {modules}", [*plain, selective, f"--train.recompute_modules={modules}"]
    yield "T 512 x 4, full recompute of 4 blocks", [*plain, full, "--train.recompute_blocks=4"]
    yield "T 512 x 4, full recompute, inputs on disk", [*plain, full, disk]
    yield ("T 512 x 4, full recompute of 6 blocks, inputs of 3 on disk",
           [*plain, full, disk, "--train.recompute_blocks=6", "--offload.activation_blocks=3"])
    yield "T 512 x 4, selective feed_forward, inputs on disk", [*plain, selective, disk,
                                                                "--train.recompute_modules=feed_forward"]
    for what in ("parameters", "gradients"):
        yield (f"zero 3, 2 microbatches, {what} on a disk",
               ["--parallel.zero=3", f"--train.global_batch={ranks * 2}", f"--offload.{what}=disk"])
    yield ("zero 3, 2 microbatches, all on a disk",
           ["--parallel.zero=3", f"--train.global_batch={ranks * 2}",
            *(f"--offload.{what}=disk" for what in ("parameters", "gradients", "optimizer"))])
    yield "tensor 2, sequence parallel", ["--parallel.tensor=2", "--parallel.sequence_parallel=true",
                                          "--train.global_batch=4", *long]


def planned_of(output):
    text = output[output.index("\nplanned "):]
    return {kind: float(number) * UNITS[unit]
            for kind, number, unit in re.findall(r"(\w+) ([\d.]+) (B|KiB|MiB|GiB)", text[:text.index("other") + 24])
            if kind in KINDS}


def run(args, folder, options):
    """Planned bytes, measured bytes, and the peak of resident memory of the largest rank."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as place:
        result = subprocess.run([args.trireme.resolve(), "train", folder / "bench.toml", f"--output.folder={place}",
                                 f"--offload.folder={place}", "--checkpoint.interval=0", f"--ranks={args.ranks}", "--threads=1",
                                 f"--data.path={folder / 'tokens'}", *options, *(f"--{option}" for option in args.options)],
                                cwd=ROOT, capture_output=True, text=True)
        if result.returncode != 0:
            print(f"bench: {' '.join(options)}: {result.stderr.strip()}", file=sys.stderr)
            return None
        last = json.loads((Path(place) / "metrics.jsonl").read_text().splitlines()[-1])
        return planned_of(result.stdout), {kind: last[f"memory_{kind}_bytes"] for kind in KINDS}, last["peak_rss_bytes"]


def measure(args, folder):
    for name, options in layouts(args.ranks):
        if args.only and args.only not in name:
            continue
        small = run(args, folder, [*options, *shape(args.ranks, 64 * args.ranks)])
        large = run(args, folder, [*options, *shape(args.layers, args.width)])
        if small is None or large is None:
            continue
        planned, measured, resident = large
        growth, explained = resident - small[2], sum(measured.values()) - sum(small[1].values())
        error = sum(planned.values()) / sum(measured.values()) - 1
        yield {"layout": name, "planned": planned, "measured": measured, "error": error, "growth": growth,
               "explained": explained / growth}
        print(f"bench: {name}: plan {100 * error:+.1f} %, ledger over growth {explained / growth:.3f}", file=sys.stderr)


def table_of(rows):
    head = "| layout | " + " | ".join(KINDS) + " | sum | plan | ledger / growth |"
    lines = [head, "|" + "---|" * (len(KINDS) + 4)]
    for row in rows:
        cells = [f"{row['planned'][kind] / 2**20:.0f} / {row['measured'][kind] / 2**20:.0f}" for kind in KINDS]
        sums = [sum(row[which].values()) / 2**20 for which in ("planned", "measured")]
        lines.append(f"| {row['layout']} | " + " | ".join(cells) + f" | {sums[0]:.0f} / {sums[1]:.0f} | "
                     f"{100 * row['error']:+.1f} % | {row['explained']:.3f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512, help="a multiple of 64")
    parser.add_argument("--only", help="only layouts with this in their name")
    parser.add_argument("--options", nargs="*", default=[], help="for every run, written key=value")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder)
        (folder / "bench.toml").write_text(SMALL_LLAMA)
        rows = list(measure(args, folder))
    if args.json:
        print(json.dumps(rows))
        return
    mean = sum(abs(row["error"]) for row in rows) / len(rows)
    summary = (f"Mean error of the planned sum over {len(rows)} layouts: {100 * mean:.1f} %. Largest: "
               f"{100 * max(abs(row['error']) for row in rows):.1f} %.")
    print(table_of(rows), summary, sep="\n\n")
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-planned-memory.md",
                   f"# Planned and measured memory by kind, {day}\n\nA Llama of {args.layers} layers, width {args.width}, "
                   f"vocabulary 8192, AdamW, on {args.ranks} ranks of one thread; fp32, T 64 and one\nsequence per microbatch "
                   f"where the layout says nothing else. Each cell: planned / measured MiB of a rank.\n\n{table_of(rows)}\n\n"
                   f"{summary}\n\nRepeat: `.venv/bin/python benchmarks/planned_memory.py`.\n")


if __name__ == "__main__":
    main()
