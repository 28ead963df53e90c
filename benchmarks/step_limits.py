"""Where a step of one rank goes, beside what the machine allows.

Trains the Llama of train_vs_pytorch on one rank and one thread and profiles some steps. Each part of the step has its
limit: its operations at the fastest rate of a large product of the same dtype, or the bytes that it must read and
write at the rate of a sum of two arrays that do not fit a cache. Both rates are measured by libtorch right before and
after each run, on as many threads. A pass reads each input once and writes each output once; operands of products are
taken to hide behind them. The sum of the limits over the step's time is what the step reaches of the machine.

    benchmarks/step_limits.py --precision fp32 bf16 --width 512 1024

For figures to keep, use a release build on a machine that does nothing else.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "train_vs_pytorch"))

from runners import config_text, make_start  # noqa: E402
from trireme_runs import ROOT, checked, write_note  # noqa: E402

TOKENS, VOCABULARY = 256, 8192  # of a sequence; of the model that runners.py describes
WARMUP, STEPS = 6, 4

# Prints the rates of a product and of a sum of arrays: FLOP/s, bytes/s.
RATES = """
import sys, time, torch
torch.set_num_threads(int(sys.argv[2]))
dtype = getattr(torch, {"fp32": "float32", "bf16": "bfloat16"}[sys.argv[1]])
def best(work, count):
    work()
    return min((lambda start: (work(), time.perf_counter() - start)[1])(time.perf_counter()) for _ in range(count))
n = 2048
a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
x, y, z = (torch.ones(1 << 24) for _ in range(3))
print(2 * n**3 / best(lambda: torch.mm(a, b), 8), 3 * x.nbytes / best(lambda: torch.add(x, y, out=z), 8))
"""

PARTS = ("products", "attention", "passes of the layers, loss", "gradients into buckets", "embedding",
         "gradient norm", "optimizer", "other operators")
PRODUCTS = {f"aten::{name}" for name in ("mm", "addmm", "addmm_", "bmm", "baddbmm", "linear")}


def part_of(chain):
    """The part of a step that a span belongs to, by its name and the names of those around it."""
    name = chain[-1]
    if "norm" in chain:
        return "gradient norm"
    if "optimizer" in chain:
        return "optimizer"
    if any("AccumulateGrad" in each for each in chain):
        return "gradients into buckets"
    if name in PRODUCTS:
        return "products"
    if any(each.startswith("trireme::attention") for each in chain):
        return "attention"
    if any("mbedding" in each for each in chain):
        return "embedding"
    if name == "forward_backward" or "CppNode" in name:
        return "passes of the layers, loss"
    return "other operators"


def own_seconds(trace, steps):
    """Seconds per step of each part, from the spans of rank 0's steps, without the spans within them."""
    wanted = {"phase", "operator", "wait"}
    spans = sorted(((event["ts"], -event["dur"], event["name"]) for event in trace["traceEvents"]
                    if event["ph"] == "X" and event["pid"] == 0 and event["cat"] in wanted))
    seconds = dict.fromkeys(PARTS, 0.0)
    around = []  # name, end, own time left

    def close(until):
        while around and around[-1][1] <= until:
            chain = [each[0] for each in around]
            seconds[part_of(chain)] += max(0.0, around.pop()[2]) / 1e6 / steps

    for begin, negative, name in spans:
        close(begin)
        if around:
            around[-1][2] += negative
        around.append([name, begin - negative, -negative])
    close(float("inf"))
    return seconds


def work_of(args, width, precision):
    """Of each part: operations and bytes that it cannot do without."""
    S, T, D, F, L, V = args.batch * TOKENS, TOKENS, width, width * 5 // 2, args.layers, VOCABULARY
    item = {"fp32": 4, "bf16": 2}[precision]
    parameters = L * (4 * D * D + 3 * D * F + 2 * D) + 2 * V * D + D
    multiplied = L * (4 * D * D + 3 * D * F) + V * D
    # Read and written, forward + backward: norms (x, y; two gradients and x, one gradient), rotary of q and k, SwiGLU,
    # and the head's chunks of fp32 logits, which a cache holds, but for their inputs and gradients.
    layers = S * item * (L * ((2 * (2 + 4) + 2 * (2 + 2)) * D + (3 + 5) * F) + (2 + 4) * D + 3 * D)
    # bf16 has fp32 masters. Gradient, master, two moments; the weight.
    states = 2 * 3 * 4 + (item + item if precision == "bf16" else item)
    return {"products": (6 * S * multiplied, 0), "attention": (7 * S * T * D * L, 8 * S * D * item * L),
            "passes of the layers, loss": (0, layers), "gradients into buckets": (0, 0),
            "embedding": (0, S * D * item * 4 + V * D * item), "gradient norm": (0, parameters * item),
            "optimizer": (0, parameters * states), "other operators": (0, 0)}


def rates_of(args, precision):
    printed = checked([sys.executable, "-c", RATES, precision, args.threads])
    return tuple(map(float, printed.split()))


def measure(args, folder, width, precision):
    """Medians over the rounds: seconds of each part, of a step outside the profiler, and the machine's rates."""
    args.width, args.precision, args.steps = width, precision, WARMUP + STEPS + 4
    start = make_start(args, folder, args.batch)
    parts, steps, products, memory = [], [], [], []
    for number in range(args.rounds):
        before = rates_of(args, precision)
        run = folder / f"run-{number}"
        config = folder / f"{number}.toml"
        config.write_text(config_text(args, args.steps, start.data, 1, args.batch, str(run)))
        checked([args.trireme, "train", config, "--ranks", 1, "--threads", args.threads, "--profile",
                 f"--profile-warmup={WARMUP}", f"--profile-steps={STEPS}"])
        after = rates_of(args, precision)
        parts.append(own_seconds(json.loads((run / "profile/trace.json").read_text()), STEPS))
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        steps.append(statistics.median(step["step_seconds"] for step in metrics[2:WARMUP]))
        products.append(max(before[0], after[0]))
        memory.append(max(before[1], after[1]))
    median = {name: statistics.median(part[name] for part in parts) for name in PARTS}
    return median, statistics.median(steps), statistics.median(products), statistics.median(memory)


def table(args, width, precision, measured):
    seconds, step, flops, bandwidth = measured
    lines = [f"\n{precision}, width {width}: a step takes {1e3 * step:.0f} ms ({args.batch * TOKENS / step:,.0f} tokens/s); "
             f"products reach {flops / 1e9:,.0f} GFLOP/s at most, memory {bandwidth / 1e9:.1f} GB/s\n",
             "| part | ms | GFLOP | MB | GFLOP/s | GB/s | limit, ms | share of the limit |", "|---|---|---|---|---|---|---|---|"]
    total = 0.0
    for name, (work, size) in work_of(args, width, precision).items():
        limit = work / flops + size / bandwidth
        total += limit
        took = seconds[name]
        rate = f"{work / took / 1e9:,.0f} | " if work else "| "
        rate += f"{size / took / 1e9:.1f}" if size and not work else ""
        lines.append(f"| {name} | {1e3 * took:.1f} | {work / 1e9:.1f} | {size / 1e6:.0f} | {rate} | {1e3 * limit:.1f} | "
                     f"{100 * limit / took:.0f} % |")
    whole = sum(seconds.values())
    lines.append(f"| the profiled step | {1e3 * whole:.1f} | | | | | {1e3 * total:.1f} | {100 * total / whole:.0f} % |")
    lines.append(f"| a step without profiler | {1e3 * step:.1f} | | | | | {1e3 * total:.1f} | {100 * total / step:.0f} % |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=str(ROOT / "build/release/bin/trireme"))
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--width", type=int, nargs="+", default=[512], help="multiples of 64, the width of a head")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8, help="sequences per step")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")
    args = parser.parse_args()
    args.microbatch = 0
    text = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        for width in args.width:
            for precision in args.precision:
                measured = measure(args, Path(folder) / f"{precision}-{width}", width, precision)
                text.append(table(args, width, precision, measured))
                print(text[-1], flush=True)
    if not args.no_note:
        today = datetime.date.today().isoformat()
        write_note(f"{today}-step-limits.md", f"# A step of one rank beside the machine's limits, {today}\n" + "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
