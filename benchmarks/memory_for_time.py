"""What saving memory costs in time: recompute, offload and ZeRO, compared with the same run without them.

Trains one Llama once per variant and round, alternating. Prints the median step, the peak resident
memory of the largest rank, and both relative to the plain run. Checks that every variant has the plain
run's bits. Writes a dated note to benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from trireme_runs import add_arguments, checked, train, write_note

CONFIG = """
[model]
family = "llama"
layers = 8
width = 256
heads = 4
kv_heads = 4
ffn_width = 704
sequence_length = 512
vocab_size = 512
[train]
global_batch = {batch}
micro_batch = {micro_batch}
[optimizer]
warmup_steps = 0
"""
# Name, options.
VARIANTS = [
    ("plain", []),
    ("recompute selective (attention_core)", ["--train.recompute=selective"]),
    ("recompute selective (attention, feed_forward)",
     ["--train.recompute=selective", "--train.recompute_modules=attention,feed_forward"]),
    ("recompute full", ["--train.recompute=full"]),
    ("offload to disk", ["--offload.optimizer=disk", "--offload.buffer_bytes=4194304"]),
    ("ZeRO-1", ["--parallel.zero=1"]),
    ("ZeRO-2", ["--parallel.zero=2"]),
    ("ZeRO-3", ["--parallel.zero=3"]),
    ("ZeRO-3, recompute full, offload to disk",
     ["--parallel.zero=3", "--train.recompute=full", "--offload.optimizer=disk", "--offload.buffer_bytes=4194304"]),
]


def measure(args, folder, data, options):
    """The seconds per step of one run, its peak memory, and the losses and norms that it computed."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as run:
        steps = train(args.trireme.resolve(), folder / "bench.toml", run, f"--ranks={args.ranks}",
                      f"--data.path={data}", f"--train.steps={args.steps}", *options)
    return {"seconds": statistics.median(step["step_seconds"] for step in steps[args.warmup:]),
            "memory": max(step["peak_rss_bytes"] for step in steps),
            "curve": [(step["loss"], step["grad_norm"]) for step in steps]}


def table(rows):
    lines = ["| variant | step | relative to plain | peak memory per rank | relative to plain |",
             "|---|---|---|---|---|"]
    for name, row in rows.items():
        plain = rows["plain"]
        lines.append(f"| {name} | {row['seconds'] * 1e3:.0f} ms | {row['seconds'] / plain['seconds']:.2f} | "
                     f"{row['memory'] / 2**20:.0f} MiB | {row['memory'] / plain['memory']:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2, help="first steps left out of each median")
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences of 512 tokens per rank and step")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        (folder / "text").write_bytes(os.urandom(4 << 20))
        (folder / "bench.toml").write_text(CONFIG.format(batch=args.ranks * args.micro_batch,
                                                         micro_batch=args.micro_batch))
        checked([args.trireme.resolve(), "data", "prepare", "--input", str(folder / "text"), "--tokenizer", "bytes",
                 "--output", str(folder / "tokens")])
        results = {name: [] for name, _ in VARIANTS}
        for round_index in range(args.rounds):
            for name, options in VARIANTS if round_index % 2 == 0 else reversed(VARIANTS):
                results[name].append(measure(args, folder, folder / "tokens", options))
            print(f"bench: round {round_index + 1} of {args.rounds} done", file=sys.stderr)
    for name, runs in results.items():
        if any(run["curve"] != results["plain"][0]["curve"] for run in runs):
            sys.exit(f"{name} and plain have different losses: a bug")
    rows = {name: {key: statistics.median(run[key] for run in runs) for key in ("seconds", "memory")}
            for name, runs in results.items()}

    print(json.dumps(rows, indent=1) if args.json else table(rows))
    if not args.no_note:
        today = datetime.date.today().isoformat()
        write_note(f"{today}-memory-for-time.md", f"""# What saving memory costs in time, {today}

Llama of 8 layers, width 256, T 512, vocabulary 512, fp32, AdamW; {args.ranks} ranks with {args.micro_batch} sequences each, on
{len(os.sched_getaffinity(0))} cores. Medians of {args.rounds} rounds of {args.steps} steps (the first {args.warmup} left out), alternating. \
All variants have the same losses, bit for bit.

{table(rows)}

Repeat: `benchmarks/memory_for_time.py`.
""")


if __name__ == "__main__":
    main()
