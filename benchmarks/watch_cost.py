"""What a step costs more because it can be watched: the series of ranks, and a page that somebody has open.

Two data-parallel ranks train a small Llama, again and again, in turns: plain (watch.ranks = false), with the series of ranks,
with the series while `trireme watch` answers what an open page asks, and with snapshots of memory. Each round has the ratio of
each median step to the plain one of the same round; the table has the median of the rounds, and the smallest and the largest.
The ledger of memory has no switch: --plain PROGRAM takes another build, without it, for the plain runs.
Writes a note to benchmarks/results/.
"""

import argparse
import contextlib
import datetime
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from trireme_runs import SMALL_LLAMA, add_arguments, prepare_random_tokens, shape, train, write_note
from watch_scale import Server

KINDS = {
    "plain": ["--watch.ranks=false"],
    "series": [],
    "watched": [],
    "snapshot": ["--watch.memory=snapshot"],
}
POLL_SECONDS = 2  # as the page does
ASKED = ("/api/runs", "/api/run?run=0", "/api/series?run=0&name=loss&points=800", "/api/series?run=0&name=tokens_per_second&points=800",
         "/api/ranks?run=0&column=own_seconds", "/api/waits?run=0", "/api/events?run=0&most=100", "/api/log?run=0&rank=0&most=60")


def look(program, run, over):
    """Asks what a page asks that somebody has open, from when the run has its folder."""
    while not (run / "config.toml").exists():
        if over.wait(0.02):
            return
    with Server(program, run) as server:
        while not over.wait(POLL_SECONDS):
            for path in ASKED:
                server.ask(path)


@contextlib.contextmanager
def looked_at(program, run):
    over = threading.Event()
    looker = threading.Thread(target=look, args=(program, run, over))
    looker.start()
    try:
        yield
    finally:
        over.set()
        looker.join()


def median_step(args, folder, kind):
    run = folder / kind
    program = (args.plain or args.trireme) if kind == "plain" else args.trireme
    options = [f"--ranks={args.ranks}", "--threads=1", f"--data.path={folder / 'tokens'}", f"--train.steps={args.steps}",
               f"--train.global_batch={4 * args.ranks}", "--train.micro_batch=4", "--model.sequence_length=128",
               *shape(args.layers, args.width), *KINDS[kind]]
    watching = looked_at(args.trireme.resolve(), run) if kind == "watched" else contextlib.nullcontext()
    with watching:
        steps = train(program.resolve(), folder / "config.toml", run, *options)
    shutil.rmtree(run)
    return statistics.median(step["step_seconds"] for step in steps[args.steps // 4:])


def measure(args, folder):
    """A dict of medians for each round."""
    prepare_random_tokens(args.trireme, folder)
    (folder / "config.toml").write_text(SMALL_LLAMA)
    rounds = []
    for number in range(args.rounds):
        # Each kind comes in each place, so that what warms up or slows down falls on all of them.
        order = [list(KINDS)[(number + place) % len(KINDS)] for place in range(len(KINDS))]
        rounds.append({kind: median_step(args, folder, kind) for kind in order})
        print(f"round {number + 1}: " + ", ".join(f"{kind} {1e3 * rounds[-1][kind]:.2f} ms" for kind in KINDS), file=sys.stderr)
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--plain", type=Path, metavar="PROGRAM", help="for the plain runs, such as a build without the ledger")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        rounds = measure(args, Path(name))
    ratios = {kind: [each[kind] / each["plain"] for each in rounds] for kind in KINDS if kind != "plain"}
    if args.json:
        print(json.dumps({"rounds": rounds, "ratios": ratios}, indent=2))
        return
    plain = 1e3 * statistics.median(each["plain"] for each in rounds)
    text = (f"# What being watched costs a step, {datetime.date.today()}\n\n{args.ranks} data-parallel ranks, {args.layers} layers of width "
            f"{args.width}, a plain step of {plain:.1f} ms; {args.rounds} rounds of {args.steps} steps in "
            f"{(time.monotonic() - begun) / 60:.0f} min. Budget: 1.005 for the series and for a watched run.\n\n"
            "| run | step / plain step of the same round: median | smallest | largest |\n|---|---|---|---|\n")
    text += "".join(f"| {kind} | {statistics.median(each):.4f} | {min(each):.4f} | {max(each):.4f} |\n" for kind, each in ratios.items())
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-watch-cost.md", text)


if __name__ == "__main__":
    main()
