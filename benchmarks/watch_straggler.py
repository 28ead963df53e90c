"""What the page of `trireme watch` says a run would take without its slowest rank, beside the run without it.

Two data-parallel ranks train a small Llama; in every second run rank 1 is stopped and continued many times a second. Of each
slowed run the page is asked for the step time without rank 1, and of the run before it the median step is measured. The other
rank's own seconds are those that the page reckons with: where they grow in the slowed run, the machine computes slower for a rank
that waits half of the time, which no reckoning can take back. Then rank 1 is stopped for good: page and doctor have to name it, as
they name the slowed one. Writes a note to benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from trireme_runs import SMALL_LLAMA, add_arguments, prepare_random_tokens, shape, write_note
from watch_scale import Server

OTHER, SLOW = 0, 1
PERIOD = 0.02


def pids_of(launcher):
    """Of the ranks, in their order."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return [int(pid) for pid in children]


def slow_down(pid, share, over):
    """Stops the process for `share` of the time."""
    while not over.is_set():
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD * share)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        time.sleep(PERIOD * (1 - share))


def start(args, folder, run, steps):
    command = [args.trireme.resolve(), "train", folder / "config.toml", "--ranks=2", "--threads=1", f"--data.path={folder / 'tokens'}",
               f"--output.folder={run}", "--checkpoint.interval=0", f"--train.steps={steps}", "--train.global_batch=8",
               "--train.micro_batch=4", "--model.sequence_length=128", *shape(2, 192)]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})


def last_step(run):
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def wait_for_step(process, run, step):
    while last_step(run) < step:
        if process.poll() is not None:
            sys.exit(f"{run.name} ended at step {last_step(run)}")
        time.sleep(0.02)


def named_by_doctor(args, run):
    result = subprocess.run([args.trireme.resolve(), "doctor", "--json", run], capture_output=True, text=True)
    found = json.loads(result.stdout or "{}").get("findings", [])
    return sorted({rank for finding in found for rank in finding.get("ranks", [])})


def own_seconds(server, rank):
    """The median over the last steps."""
    answer = server.ask(f"/api/series?run=0&name=rank/{rank}/own_seconds&points=64")[1]
    return statistics.median(value for value in answer["series"][0]["mean"][-64:] if value is not None)


def named_by_page(server):
    """The rank with the most own seconds in the last steps, and the ranks of the page's findings."""
    own = [own_seconds(server, rank) for rank in range(2)]
    about = server.ask("/api/run?run=0")[1]
    return own.index(max(own)), sorted({rank for finding in about["findings"] for rank in finding["ranks"]}), about["state"]


def plain(args, folder, run):
    """(median step, own seconds of the other rank)"""
    process = start(args, folder, run, args.steps)
    process.wait()
    steps = [json.loads(line)["step_seconds"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    with Server(args.trireme, run) as server:
        server.wait_for(args.steps)
        return statistics.median(steps[args.steps // 4:]), own_seconds(server, OTHER)


def slowed(args, folder, run):
    """(median step, without the slow rank, the rank that the page names, own seconds of the other rank)"""
    process = start(args, folder, run, args.steps)
    wait_for_step(process, run, 3)
    over = threading.Event()
    slower = threading.Thread(target=slow_down, args=(pids_of(process)[SLOW], args.share, over))
    slower.start()
    process.wait()
    over.set()
    slower.join()
    with Server(args.trireme, run) as server:
        server.wait_for(args.steps)
        answer = server.ask(f"/api/straggler?run=0&rank={SLOW}")[1]
        return answer["step_seconds"], answer["without"], named_by_page(server)[0], own_seconds(server, OTHER)


def stopped(args, folder, run):
    """What doctor and page name of a rank that is stopped for good."""
    process = start(args, folder, run, 100_000)
    wait_for_step(process, run, 100)  # of which the page knows all but those of the last two seconds
    pids = pids_of(process)
    os.kill(pids[SLOW], signal.SIGSTOP)
    try:
        time.sleep(args.patience)
        with Server(args.trireme, run) as server:
            server.wait_for(1)
            page = named_by_page(server)
        return named_by_doctor(args, run), page[1], page[2]
    finally:
        process.terminate()
        os.kill(pids[SLOW], signal.SIGCONT)
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.5, help="of the time that rank 1 is stopped")
    parser.add_argument("--patience", type=float, default=12, help="seconds after which a stopped rank has to be named")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder)
        (folder / "config.toml").write_text(SMALL_LLAMA)
        for _ in range(args.rounds):
            step, own = plain(args, folder, folder / "plain")
            slow_step, without, named, slow_own = slowed(args, folder, folder / "slowed")
            rows.append({"plain": step, "slowed": slow_step, "without": without, "ratio": without / step, "named": named,
                         "other_rank": slow_own / own})
            print(rows[-1], file=sys.stderr)
            for run in ("plain", "slowed"):
                shutil.rmtree(folder / run)
        doctor, page, state = stopped(args, folder, folder / "stopped")
    if args.json:
        print(json.dumps({"rounds": rows, "doctor": doctor, "page": page, "state": state}, indent=2))
        return
    text = (f"# Without the straggler, {datetime.date.today()}\n\nTwo data-parallel ranks; rank {SLOW} stopped for {100 * args.share:.0f} % "
            f"of the time in steps of {1e3 * PERIOD:.0f} ms; medians of {args.steps} steps in ms.\n\n"
            f"| run without it | slowed run | the page: without the rank | ratio to the run without it | rank {OTHER}'s own seconds, slowed "
            "run over the other | rank named |\n|---|---|---|---|---|---|\n")
    text += "".join(f"| {1e3 * row['plain']:.0f} | {1e3 * row['slowed']:.0f} | {1e3 * row['without']:.0f} | {row['ratio']:.2f} | "
                    f"{row['other_rank']:.2f} | {row['named']} |\n"
                    for row in rows)
    text += f"\nRank {SLOW} stopped for good, {args.patience:g} s later: doctor names {doctor}, the page {page} (state {state}).\n"
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-watch-straggler.md", text)


if __name__ == "__main__":
    main()
