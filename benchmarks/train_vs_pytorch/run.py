"""The same Llama in trireme and in its peers, alternating in one run.

Peers: PyTorch DDP, eager and compiled, beside trireme's DDP; FSDP2 and DeepSpeed beside trireme's
ZeRO-2 and ZeRO-3. Prints, for 1 and 2 ranks and 8 and 1 sequences a rank: tokens/s, peak resident
memory of the largest rank, seconds from the launcher's start to the end of the first step, and
their ratios; and, for several ranks, trireme's tokens/s over those of as many trireme processes
that do not communicate, in the same rounds. Sharding peers need several ranks. Writes a dated note
to benchmarks/results/.
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
from runners import METRICS, ZERO, PeerError, run_peer, run_trireme

ROOT = Path(__file__).resolve().parents[2]
# Peers start from the same weights and read the same tokens: more than this between their last
# losses means that one does other work.
LOSS_TOLERANCE = 0.01


def checked(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout.strip()


def measure(args, data, ranks, batch, peers):
    """Every runner's results over the rounds, and what failed; the runners take turns at going first."""
    common = (args, data, ranks, batch, max(1, args.cores // ranks))
    runners = {peer: functools.partial(run_peer, *common, peer) for peer in peers}
    for zero in sorted({ZERO[peer] for peer in peers}):
        runners[zero] = functools.partial(run_trireme, *common, zero=zero)
    if ranks > 1:
        runners["independent"] = functools.partial(run_trireme, args, data, 1, *common[3:], copies=ranks)
    results, failed = {name: [] for name in runners}, {}
    for round_index in range(args.rounds):
        for name in runners if round_index % 2 == 0 else reversed(runners):
            if name in failed:
                continue
            try:
                results[name].append(runners[name]())
            except PeerError as error:
                failed[name] = str(error)
                print(f"bench: {name} did not run: {error}", file=sys.stderr)
    return results, failed


def check_losses(results, failed, peers):
    """Adds to `failed` the peers whose last loss is not that of the first peer."""
    losses = {peer: results[peer][-1]["last_loss"] for peer in peers if peer not in failed}
    expected = next(iter(losses.values()), 0.0)
    for peer, loss in losses.items():
        if not abs(loss - expected) <= LOSS_TOLERANCE * expected:
            failed[peer] = f"its last loss is {loss:.4f}, that of {next(iter(losses))} {expected:.4f}"


def compare(args, data, ranks, batch):
    """Medians over the rounds, by peer and by trireme's stage."""
    peers = [peer for peer in args.peers if ranks > 1 or ZERO[peer] == 0]
    results, failed = measure(args, data, ranks, batch, peers)
    check_losses(results, failed, peers)
    medians = {name: {metric: statistics.median(result[metric] for result in results[name])
                      for metric in METRICS} for name in results if name not in failed}
    row = {"ranks": ranks, "sequences_per_rank": batch, "peers": {}, "trireme": {}}
    for peer in peers:
        entry = row["peers"][peer] = {"zero": ZERO[peer]}
        if peer in failed:
            entry["failed"] = failed[peer]
            continue
        for metric in METRICS:
            theirs, ours = medians[peer][metric], medians[ZERO[peer]][metric]
            entry[metric] = {"peer": theirs, "trireme": ours, "ratio": ours / theirs,
                             "target": report.target(metric, peer, ranks, batch)}
    for zero in sorted({ZERO[peer] for peer in peers}):
        entry = row["trireme"][zero] = medians[zero]
        for name, key in ((0, "of_zero_0"), ("independent", "of_independent")):
            if name in medians and name != zero:
                entry[key] = entry["tokens_per_second"] / medians[name]["tokens_per_second"]
    return row


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trireme", default=str(ROOT / "build/release/bin/trireme"))
    parser.add_argument("--peers", nargs="+", choices=ZERO, default=list(ZERO))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5, help="first steps left out of each median")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 1], help="sequences a rank")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--deepspeed-python", default=str(ROOT / "build/bench-venv/bin/python"),
                        help="interpreter that imports deepspeed (default: the one of tools/setup_bench.sh)")
    parser.add_argument("--compile-cache", help="folder that keeps what torch.compile made between runs"
                        " (default: empty at each start)")
    parser.add_argument("--peer-timeout", type=float, default=900, help="seconds a run of a peer may take")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")
    args = parser.parse_args()
    if not 0 <= args.warmup < args.steps:
        parser.error(f"--warmup {args.warmup} must lie below --steps {args.steps}")
    return args


def deepspeed_version(args):
    """Asked of its own environment; no word on why it is missing, which its row says."""
    ask = "import importlib.metadata as m; print(m.version('deepspeed'))"
    try:
        return subprocess.run([args.deepspeed_python, "-c", ask], capture_output=True, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-data-") as folder:
        # All read the same tokens; what they are does not change the work.
        text, data = Path(folder) / "text", Path(folder) / "tokens"
        text.write_bytes(os.urandom(4 << 20))
        checked([args.trireme, "data", "prepare", "--input", str(text), "--tokenizer", "bytes",
                 "--output", str(data)])
        rows = []
        for batch in args.batch:
            for ranks in args.ranks:
                rows.append(compare(args, data, ranks, batch))
                print(f"bench: {ranks} ranks, {batch} sequences a rank done", file=sys.stderr)

    print(json.dumps(rows, indent=1) if args.json else report.tables(rows))
    if not args.no_note:
        path = ROOT / f"benchmarks/results/{datetime.date.today().isoformat()}-train-vs-pytorch.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(report.note(args, rows, deepspeed_version(args)))
        print(f"bench: wrote {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
