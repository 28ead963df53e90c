"""Where a training step's time goes, part by part, beside what the machine's products and memory would allow.

A Llama trains on one rank with one thread under `trireme train --profile`. Each part of its step has its time in the trace, its
operations and the fewest bytes that must move, and its limit: operations at the rate of a large product, and bytes at the rate of
a sum of two large vectors into one of them, both measured by libtorch before and after the run. Products, head and attention are limited by
operations, the others by bytes. Writes a note to benchmarks/results/.

    benchmarks/step_limits.py --precision bf16 --width 512
"""

import argparse
import collections
import datetime
import json
import os
import re
import statistics
import tempfile
import time
from pathlib import Path

from trireme_runs import SMALL_LLAMA, add_arguments, checked, prepare_random_tokens, shape, write_note

LAYERS, TOKENS, SEQUENCES, VOCABULARY = 6, 256, 8, 8192
PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm")
# The first part that an event or one around it fits.
PARTS = [("head and loss", r"trireme::linear_cross_entropy|LinearCrossEntropy backward"),
         ("attention", r"trireme::attention|scaled_dot_product|Ring backward"),
         ("SwiGLU", r"trireme::swiglu|Swiglu backward"),
         ("norms", r"trireme::rms_norm|RmsNorm backward"),
         ("rotary", r"trireme::rotary|Rotary backward"),
         ("embedding", r"embedding|index_select|EmbeddingBackward"),
         ("gathering gradients", r"^torch::autograd::AccumulateGrad")]
OF_PHASE = {"norm": "gradient norm", "optimizer": "optimizer"}


def needs(width, ffn, item):
    """Operations and bytes of each part."""
    N, D, F, V, L, T, s = SEQUENCES * TOKENS, width, ffn, VOCABULARY, LAYERS, TOKENS, item
    weights = L * (4 * D * D + 3 * D * F) + 2 * V * D
    return {"products of layers": (6 * N * L * (4 * D * D + 3 * D * F), 0),
            "head and loss": (6 * N * D * V, 0),
            # Causal; backward takes 2.5 times the operations of forward.
            "attention": (7 * N * T * D * L, 0),
            "SwiGLU": (0, 8 * N * F * s * L),
            "norms": (0, 6 * N * D * s * (2 * L + 1)),
            "rotary": (0, 8 * N * D * s * L),
            "embedding": (0, (5 * N + V) * D * s),
            "gathering gradients": (0, 0),
            "gradient norm": (0, weights * s),
            # Both moments, and the weights in fp32 or their masters, are read and written.
            "optimizer": (0, weights * (s + 24 + (2 if s == 2 else 0))),
            "other": (0, 0)}


def rates(precision):
    """Operations and bytes per second."""
    import torch
    torch.set_num_threads(1)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32

    def fastest(call):
        call()
        times = []
        begin = time.perf_counter()
        while time.perf_counter() - begin < 1 or len(times) < 3:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    n, count = 2048, 1 << 24
    a, b, out = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype), torch.empty(n, n, dtype=dtype)
    x, y = torch.ones(count), torch.ones(count)
    return 2 * n ** 3 / fastest(lambda: torch.mm(a, b, out=out)), 12 * count / fastest(lambda: x.add_(y))


def part_of(event, path):
    for name, pattern in PARTS:
        if any(re.search(pattern, each) for each in [*path, event["name"]]):
            return name
    return "products of layers" if any(each in PRODUCTS for each in [*path, event["name"]]) else "other"


def seconds_of_parts(trace, steps):
    """The time of each part in a step of rank 0, and the step's."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X" and event["pid"] == 0]
    phases = [event for event in events if event["tid"] == 1 and not event["name"].startswith("step")]
    found = collections.Counter()
    inside = 0  # of forward and backward, what operators take
    stack = []
    within = [event for event in events if 2 <= event["tid"] < 999]
    bounds = [(event["ts"], event["ts"] + event["dur"]) for event in phases if event["name"] == "forward_backward"]
    for event in sorted(within, key=lambda event: (event["ts"], -event["dur"])):
        if not any(begin <= event["ts"] < end for begin, end in bounds):
            continue
        while stack and stack[-1][1] <= event["ts"] + 1e-6:
            stack.pop()
        part = part_of(event, [name for name, _, _ in stack])
        found[part] += event["dur"]
        if stack:
            found[stack[-1][2]] -= event["dur"]
        else:
            inside += event["dur"]
        stack.append((event["name"], event["ts"] + event["dur"], part))
    for event in phases:
        found[OF_PHASE.get(event["name"], "other")] += event["dur"]
    found["other"] -= inside
    whole = sum(event["dur"] for event in events if event["tid"] == 1 and event["name"].startswith("step"))
    return {name: 1e-6 * value / steps for name, value in found.items()}, 1e-6 * whole / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5, help="steps that are profiled, after as many others")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    ffn, item = args.width * 5 // 2, 2 if args.precision == "bf16" else 4
    before = rates(args.precision)
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        tokens = prepare_random_tokens(args.trireme, folder)
        (folder / "config.toml").write_text(SMALL_LLAMA)
        checked([args.trireme.resolve(), "train", folder / "config.toml", "--ranks=1", "--threads=1", f"--data.path={tokens}",
                 f"--output.folder={folder / 'run'}", "--checkpoint.interval=0", f"--train.precision={args.precision}",
                 f"--train.global_batch={SEQUENCES}", f"--train.micro_batch={SEQUENCES}", f"--model.sequence_length={TOKENS}",
                 f"--train.steps={2 * args.steps + 2}", "--profile", f"--profile-warmup={args.steps}",
                 f"--profile-steps={args.steps}", *shape(LAYERS, args.width)])
        found, step = seconds_of_parts(json.loads((folder / "run/profile/trace.json").read_text()), args.steps)
    operations, memory = map(statistics.mean, zip(before, rates(args.precision)))
    rows, limits = [], 0
    for part, (flops, num_bytes) in needs(args.width, ffn, item).items():
        seconds = found.get(part, 0)
        limit = flops / operations + num_bytes / memory
        limits += limit
        rows.append({"part": part, "seconds": seconds, "flops": flops, "bytes": num_bytes, "limit": limit})
    if args.json:
        print(json.dumps({"step": step, "limit": limits, "flops_per_second": operations, "bytes_per_second": memory, "parts": rows},
                         indent=2))
        return
    text = (f"# A step beside the machine's limits, {args.precision}, width {args.width}, {datetime.date.today()}\n\n"
            f"One rank of one thread: {LAYERS} layers, ffn {ffn}, vocabulary {VOCABULARY}, {SEQUENCES} sequences of {TOKENS}, AdamW. "
            f"A product of 2,048³ reaches {operations / 1e9:,.0f} GFLOP/s, a sum of vectors {memory / 1e9:.1f} GB/s. A step takes "
            f"{1e3 * step:.0f} ms, its limits add up to {1e3 * limits:.0f} ms: {100 * limits / step:.0f} %.\n\n"
            "| part | ms | GFLOP | GFLOP/s | MB | GB/s | limit, ms | of its limit |\n|---|---|---|---|---|---|---|---|\n")
    for row in rows:
        seconds = row["seconds"]
        rate = f"{row['flops'] / 1e9:.0f} | {row['flops'] / seconds / 1e9:,.0f}" if row["flops"] and seconds else " | "
        moved = f"{row['bytes'] / 1e6:.0f} | {row['bytes'] / seconds / 1e9:.1f}" if row["bytes"] and seconds else " | "
        share = f"{1e3 * row['limit']:.1f} | {100 * row['limit'] / seconds:.0f} %" if row["limit"] and seconds else " | "
        text += f"| {row['part']} | {1e3 * seconds:.1f} | {rate} | {moved} | {share} |\n"
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-step-limits-{args.precision}.md", text)


if __name__ == "__main__":
    main()
