"""Compares two builds of trireme on this machine, in turns: what a change has cost or gained.

Trains the Llama of train_vs_pytorch on two ranks under several layouts, and times `trireme bench comm`. Prints each
figure before and after the change, and the ratio of the speeds (above 1: the change is faster). All are medians of the
rounds. The spread is the largest ratio of a round over the smallest; if it is large, do not trust the ratio.

  python3 benchmarks/before_after.py ~/trireme-of-last-week --rounds 5
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import trireme_runs

sys.path.insert(0, str(trireme_runs.ROOT / "benchmarks/train_vs_pytorch"))
import runners  # noqa: E402

LAYOUTS = {"DDP": [], "ZeRO-3": ["--parallel.zero=3"], "tensor": ["--parallel.tensor=2"],
           "context": ["--parallel.context=2"], "pipeline": ["--parallel.pipeline=2"]}
COLLECTIVES = "all_reduce,all_gather,reduce_scatter,send_recv"


def tokens_per_second(program, args, start, options):
    settings = SimpleNamespace(**{**vars(args), "trireme": str(program), "warmup": 3})
    return runners.run_trireme(settings, start, 2, args.batch, 1, options)["tokens_per_second"]


def collective_speeds(program, args):
    """Operations per second, by case."""
    output = subprocess.run([program, "bench", "comm", "--operation", args.operations, "--sizes", args.sizes, "--json"],
                            capture_output=True, text=True, check=True).stdout
    return {f"{case['operation']} {case['bytes']} B, {case['memory']}": 1e6 / case["microseconds"] for case in json.loads(output)}


def rounds_of(args, start):
    """For each round, {what: (before, after)}; the builds take turns at going first."""
    for number in range(args.rounds):
        programs = [args.before, args.after] if number % 2 == 0 else [args.after, args.before]
        speeds = {program: {} for program in programs}
        for name in [] if args.no_train else args.layouts:
            for program in programs:
                speeds[program][f"train {name}, tokens/s"] = tokens_per_second(program, args, start, LAYOUTS[name])
        if not args.no_comm:
            for program in programs:
                speeds[program] |= collective_speeds(program, args)
        print(f"bench: round {number + 1} of {args.rounds} done", file=sys.stderr)
        yield {what: (speed, speeds[args.after][what]) for what, speed in speeds[args.before].items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a trireme program")
    parser.add_argument("--after", type=Path, default=trireme_runs.ROOT / "build/release/bin/trireme")
    parser.add_argument("--layouts", type=lambda text: text.split(","), default=list(LAYOUTS),
                        help=f"separated by commas (default: {','.join(LAYOUTS)})")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank")
    parser.add_argument("--operations", default=COLLECTIVES, help="of bench comm (default: %(default)s)")
    parser.add_argument("--sizes", default="4,64K,1M,16M", help="of its messages (default: %(default)s)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--no-comm", action="store_true", help="only training")
    only.add_argument("--no-train", action="store_true", help="only bench comm")
    parser.set_defaults(layers=6, width=256, microbatch=0)  # the model of train_vs_pytorch
    args = parser.parse_args()
    args.trireme = args.before
    if wrong := [name for name in args.layouts if name not in LAYOUTS]:
        parser.error(f"no layout {wrong[0]}; there are {', '.join(LAYOUTS)}")
    with tempfile.TemporaryDirectory(prefix="trireme-bench-data-") as folder:
        rounds = list(rounds_of(args, runners.make_start(args, Path(folder) / "start", 2 * args.batch)))
    print("| what | before | after | after / before | spread |\n|---|---|---|---|---|")
    for what in rounds[0]:
        pairs = [pair[what] for pair in rounds]
        ratios = [after / before for before, after in pairs]
        before, after = (statistics.median(side) for side in zip(*pairs))
        print(f"| {what} | {before:.4g} | {after:.4g} | {statistics.median(ratios):.2f} | {max(ratios) / min(ratios):.2f} |")


if __name__ == "__main__":
    main()
