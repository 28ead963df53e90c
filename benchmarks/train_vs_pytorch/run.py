"""Trains the same Llama in trireme and in its peers, alternating in one run.

Rows: PyTorch DDP, eager and compiled (ddp); FSDP2 and DeepSpeed (zero2, zero3); DTensor with and
without sequence parallelism (tensor); torch.distributed.pipelining under 1F1B (pipeline); torch's
ring attention (context); for a mixture of experts (expert) a loop over experts with all_to_all_single, and on one
rank transformers' Mixtral. Prints, for 1 and 2 ranks and for 8 and 1 sequences per rank: tokens/s, peak
resident memory of the largest rank, seconds from the launcher's start to the end of the first step, and
the ratios of these to the fastest of trireme's layouts for the row. Also prints trireme's tokens/s
relative to as many trireme processes that do not communicate, in the same rounds. Only ddp and expert run
on one rank. In every row a step takes sequences per rank times ranks; under tensor, pipeline and context
parallelism all ranks work on all of them. A layout that this trireme does not have is reported in one
line. Writes a dated note to benchmarks/results/.

For figures to keep, use a release build on a machine that does nothing else (not even a compiler of low
priority). For the rows of model parallelism run
  tools/bench.sh --rows tensor,pipeline,context --ranks 2 --rounds 5
which takes about 50 minutes on two cores (12 runs per round at each size). To try it out: --rounds 1
--steps 4 --warmup 1 --no-note. The target stands next to a row's fastest peer, which is taken to be the
peer at its best. Use more rounds when its variants are close.
"""

import argparse
import datetime
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import report
import rows as table
from runners import METRICS, RunError, make_start, run_peer, run_trireme

ROOT = Path(__file__).resolve().parents[2]
# All start from the same weights and read the same sequences in every step. A larger relative difference
# of their last losses means that one does other work. Rounding makes 4e-7 in 30 steps at this rate; at
# ten times the rate it grows to 2e-4 in 16 steps.
# In bf16 every activation is rounded by up to 2^-8 of itself, in each program elsewhere.
SAME_WORK = {"fp32": 5e-6, "bf16": 2**-8}


def measure(args, start, ranks, batch, rows):
    """The results of every runner over the rounds, and the failures. The runners take turns at going first."""
    common = (args, start, ranks, batch, max(1, args.cores // ranks))
    runners = {}
    for row in rows:
        runners |= {peer: functools.partial(run_peer, *common, peer) for peer in row.peers}
        runners |= {name: functools.partial(run_trireme, *common, options) for name, options in row.layouts.items()}
    if ranks > 1:
        runners["independent"] = functools.partial(run_trireme, args, start, 1, *common[3:], copies=ranks)
    results, failed = {name: [] for name in runners}, {}
    for round_index in range(args.rounds):
        for name in runners if round_index % 2 == 0 else reversed(runners):
            if name in failed:
                continue
            try:
                results[name].append(runners[name]())
            except RunError as error:
                failed[name] = str(error)
                print(f"bench: {name} did not run: {error}", file=sys.stderr)
    return results, failed


def check_losses(results, failed, rows, tolerance):
    """The smallest and the largest last loss; adds to `failed` what does not end with that of the first peer."""
    names = [name for side in ("peers", "layouts") for row in rows for name in getattr(row, side)]
    losses = {name: results[name][-1]["last_loss"] for name in names if name not in failed}
    goal = next(iter(losses.values()), 0)
    for name, loss in losses.items():
        if not abs(loss - goal) <= tolerance * goal:
            failed[name] = f"its last loss is {loss:.6f}, that of {next(iter(losses))} {goal:.6f}"
    equal = [loss for name, loss in losses.items() if name not in failed]
    return {"least": min(equal), "most": max(equal)} if equal else {}


def fastest(names, medians):
    """None when none of them ran."""
    return max((name for name in names if name in medians), default=None,
               key=lambda name: medians[name]["tokens_per_second"])


def entries(row, batch, ranks, medians):
    """For each of a row's peers: its figures beside those of trireme's fastest layout."""
    layout, best = fastest(row.layouts, medians), fastest(row.peers, medians)
    for peer in row.peers:
        entry = {"row": row.name, "peer": peer, "layout": layout}
        has_target = peer == best and (ranks > 1 or row.name == "expert")
        targets = {"tokens_per_second": row.speed_targets.get(batch), "peak_rss_bytes": row.memory_target}
        for metric in METRICS:
            theirs, ours = (medians.get(name, {}).get(metric) for name in (peer, layout))
            entry[metric] = {"peer": theirs, "trireme": ours, "ratio": ours / theirs if theirs and ours else None,
                             "target": targets.get(metric) if has_target else None}
        yield entry


def compare(args, folder, ranks, batch, rows):
    """Medians over the rounds, by peer and by trireme's layout."""
    start = make_start(args, folder, batch * ranks, rows[0].model)
    results, failed = measure(args, start, ranks, batch, rows)
    losses = check_losses(results, failed, rows, SAME_WORK[args.precision])
    medians = {name: {metric: statistics.median(result[metric] for result in results[name])
                      for metric in METRICS} for name in results if name not in failed}
    names = dict.fromkeys([name for row in rows for name in row.layouts] + ["independent"])
    layouts = {name: medians[name] for name in names if name in medians}
    for name, entry in layouts.items():
        for other, key in (("zero 0", "of_zero_0"), ("independent", "of_independent")):
            if other in medians and other != name:
                entry[key] = entry["tokens_per_second"] / medians[other]["tokens_per_second"]
    return {"ranks": ranks, "sequences_per_rank": batch, "trireme": layouts, "failed": failed,
            "last_loss": losses,
            "peers": [entry for row in rows for entry in entries(row, batch, ranks, medians)]}


def names_of_rows(text):
    names = text.split(",")
    if wrong := [name for name in names if name not in table.NAMES]:
        raise argparse.ArgumentTypeError(f"no row {wrong[0]}; there are {','.join(table.NAMES)}")
    return names


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=str(ROOT / "build/release/bin/trireme"))
    parser.add_argument("--rows", type=names_of_rows, default=list(table.NAMES),
                        help=f"separated by commas (default: {','.join(table.NAMES)})")
    parser.add_argument("--peers", nargs="+", help="only these peers of the rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5, help="first steps left out of each median")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 1], help="sequences per rank")
    parser.add_argument("--microbatch", type=int, default=0, help="sequences per forward, in rows ddp, zero2 and"
                        " zero3 (default: all of a rank's)")
    parser.add_argument("--precision", choices=SAME_WORK, default="fp32", help="bf16: peers run under autocast;"
                        " FSDP2 and DeepSpeed by their own mixed precision")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64, the width of a head")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--deepspeed-python", default=str(ROOT / "build/bench-venv/bin/python"),
                        help="interpreter that imports deepspeed (default: the one of tools/setup_bench.sh)")
    parser.add_argument("--compile-cache", help="folder that keeps what torch.compile made between runs"
                        " (default: empty at each start)")
    parser.add_argument("--peer-timeout", type=float, default=900, help="limit on a run of a peer, in seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")
    args = parser.parse_args()
    if not 0 <= args.warmup < args.steps:
        parser.error(f"--warmup {args.warmup} must lie below --steps {args.steps}")
    if args.microbatch and not set(args.rows) <= set(table.ACCUMULATING):
        parser.error(f"--microbatch is for the rows {','.join(table.ACCUMULATING)}")
    if args.microbatch and any(batch % args.microbatch for batch in args.batch):
        parser.error(f"--microbatch {args.microbatch} must divide each --batch")
    if args.width % 64:
        parser.error(f"--width {args.width} is no multiple of 64")
    return args


def deepspeed_version(args):
    """Asks DeepSpeed's own environment. Its row says why it is missing."""
    ask = "import importlib.metadata as m; print(m.version('deepspeed'))"
    try:
        return subprocess.run([args.deepspeed_python, "-c", ask], capture_output=True, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-data-") as folder:
        results = []
        for batch in args.batch:
            for ranks in args.ranks:
                for model, rows in table.by_model(table.chosen(args.rows, args.peers, ranks, batch)):
                    place = Path(folder) / f"{ranks}-{batch}-{len(model)}"
                    results.append(compare(args, place, ranks, batch, rows))
                    print(f"bench: {ranks} ranks, {batch} sequences per rank done", file=sys.stderr)

    print(json.dumps(results, indent=1) if args.json else report.tables(results))
    if not args.no_note:
        part = "" if args.rows == list(table.NAMES) else "-" + "-".join(args.rows)
        part += "-bf16" if args.precision == "bf16" else ""
        path = ROOT / f"benchmarks/results/{datetime.date.today().isoformat()}-train-vs-pytorch{part}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(report.note(args, results, deepspeed_version(args)))
        print(f"bench: wrote {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
