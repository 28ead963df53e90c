"""The activation memory of a rank, with pipelines, tensor and sequence parallelism, and recompute.

Measures the peak resident memory of runs of two steps. For a pipeline, shows how it grows with the
number of microbatches under each schedule. For the others, shows what one more sequence in a forward
adds, next to the bytes of the tensors that a layer keeps (docs/guide/tensor-parallel.md). Writes a dated note
to benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

from trireme_runs import add_arguments, checked, train, write_note

LAYERS, WIDTH, FFN, LENGTH = 12, 256, 704, 512
CONFIG = f"""
[model]
family = "llama"
layers = {LAYERS}
width = {WIDTH}
heads = 4
kv_heads = 4
ffn_width = {FFN}
sequence_length = {LENGTH}
vocab_size = 512
[optimizer]
warmup_steps = 0
"""
MIB = 2**20
# A layer keeps two norms' inputs and outputs of width D on rows that tensor ranks repeat; q, k, v and the
# attention's output, gate, up and their product are split.
REPEATED, SPLIT = 4, 4 + 3 * FFN / WIDTH
LAYOUTS = {
    "one rank": (1, [], REPEATED + SPLIT),
    "tensor 2": (2, ["--parallel.tensor=2"], REPEATED + SPLIT / 2),
    "tensor 2, sequence": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"], (REPEATED + SPLIT) / 2),
    "context 2": (2, ["--parallel.context=2"], (REPEATED + SPLIT) / 2),
    "one rank, recompute full": (1, ["--train.recompute=full"], 1),
    "tensor 2, sequence, recompute full": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true",
                                               "--train.recompute=full"], 1 / 2),
}


def peak(args, folder, ranks, batch, micro_batch, options):
    """Bytes of the largest rank."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as run:
        steps = train(args.trireme.resolve(), folder / "bench.toml", run, f"--ranks={ranks}",
                      f"--data.path={folder / 'tokens'}", "--train.steps=2", f"--train.global_batch={batch}",
                      f"--train.micro_batch={micro_batch}", *options)
    return max(step["peak_rss_bytes"] for step in steps)


def measure_pipeline(args, folder):
    rows = []
    for schedule in ("gpipe", "1f1b", "zero-bubble"):
        options = ["--parallel.pipeline=2", f"--parallel.schedule={schedule}"]
        sizes = {m: peak(args, folder, 2, 2 * m, 2, options) for m in (2, 4, 8, 16)}
        rows.append({"schedule": schedule, "bytes": sizes})
    return rows


def measure_layouts(args, folder):
    rows = []
    for name, (ranks, options, widths) in LAYOUTS.items():
        few, many = (peak(args, folder, ranks, batch, batch, options) for batch in (4, 12))
        rows.append({"layout": name, "bytes": (many - few) / 8, "kept": widths * LAYERS * LENGTH * WIDTH * 4})
    return rows


def tables(pipeline, layouts):
    lines = ["| schedule | 2 microbatches | 4 | 8 | 16 |", "|---|---|---|---|---|"]
    for row in pipeline:
        lines.append(f"| {row['schedule']} | " + " | ".join(f"{size / MIB:.0f} MiB" for size in row["bytes"].values())
                     + " |")
    one = layouts[0]
    lines += ["", "| layout | one more sequence | of one rank | tensors kept | of one rank |", "|---|---|---|---|---|"]
    for row in layouts:
        lines.append(f"| {row['layout']} | {row['bytes'] / MIB:.1f} MiB | {row['bytes'] / one['bytes']:.2f} | "
                     f"{row['kept'] / MIB:.1f} MiB | {row['kept'] / one['kept']:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        (folder / "text").write_bytes(os.urandom(1 << 20))
        (folder / "bench.toml").write_text(CONFIG)
        checked([args.trireme.resolve(), "data", "prepare", "--input", str(folder / "text"), "--tokenizer", "bytes",
                 "--output", str(folder / "tokens")])
        pipeline, layouts = measure_pipeline(args, folder), measure_layouts(args, folder)
    print(json.dumps({"pipeline": pipeline, "layouts": layouts}) if args.json else tables(pipeline, layouts))
    if not args.no_note:
        today = datetime.date.today().isoformat()
        write_note(f"{today}-activation-memory.md", f"""# Activations of a rank, {today}

Llama of {LAYERS} layers, width {WIDTH}, ffn {FFN}, T {LENGTH}, vocabulary 512, fp32; peak resident memory of the largest rank,
two steps, on {len(os.sched_getaffinity(0))} cores. The first table is of two pipeline ranks with microbatches of two \
sequences, the second what one more sequence in a forward adds.

{tables(pipeline, layouts)}

Repeat: `benchmarks/activation_memory.py`.
""")


if __name__ == "__main__":
    sys.exit(main())
