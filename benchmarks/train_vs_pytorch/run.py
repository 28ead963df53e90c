"""The same Llama in trireme and in eager PyTorch (DDP over Gloo), alternating in one run.

Prints, for 1 and 2 ranks and 8 and 1 sequences a rank: tokens/s, peak resident memory of the
largest rank, seconds from the launcher's start to the end of the first step, and their ratios;
and, for several ranks, their tokens/s over those of as many trireme processes that do not
communicate, in the same rounds. Writes a dated note to benchmarks/results/.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What is compared, and its name in the table.
METRICS = {"tokens_per_second": "tokens/s", "peak_rss_bytes": "peak memory",
           "seconds_to_first_step": "start"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def checked(command, **options):
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")


def run_pytorch(args, data, ranks, batch, threads):
    start = time.time()
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "WORLD_SIZE": str(ranks), "START_TIME": str(start), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, str(HERE / "pytorch_train.py"), f"--batch={batch}",
               f"--steps={args.steps}", f"--warmup={args.warmup}", f"--threads={threads}",
               f"--data={data}"]
    processes = [subprocess.Popen(command, env={**common, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for rank in range(ranks)]
    outputs = [process.communicate() for process in processes]
    for process, (out, err) in zip(processes, outputs):
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{out}{err}")
    return json.loads(outputs[0][0].splitlines()[-1])


def config_text(args, data, ranks, batch, output):
    return f"""
[model]
family = "llama"
layers = 6
width = 256
heads = 4
kv_heads = 4
ffn_width = 640
sequence_length = 256
vocab_size = 8192
[data]
path = {json.dumps(str(data))}
[train]
steps = {args.steps}
global_batch = {batch * ranks}
micro_batch = {batch}
gradient_clip = 1.0
[optimizer]
learning_rate = 1e-3
warmup_steps = 0
schedule = "constant"
weight_decay = 0.1
[checkpoint]
interval = 0
[output]
folder = {json.dumps(output)}
"""


class Job:
    """A run of `trireme train`."""

    def __init__(self, args, data, ranks, batch, threads, folder):
        self.args, self.tokens_per_step, self.first = args, batch * ranks * 256, None
        self.metrics = folder / "run" / "metrics.jsonl"
        self.log = folder / "log"
        folder.mkdir()
        (folder / "bench.toml").write_text(config_text(args, data, ranks, batch, str(folder / "run")))
        self.command = [args.trireme, "train", str(folder / "bench.toml"), "--ranks", str(ranks),
                        "--threads", str(threads)]
        self.start = time.time()
        with self.log.open("w") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT)

    def is_running(self):
        if self.first is None and self.metrics.exists() and self.metrics.stat().st_size > 0:
            self.first = time.time() - self.start
        return self.process.poll() is None

    def result(self):
        if self.process.returncode != 0 or self.first is None:
            sys.exit(f"{' '.join(self.command)} failed:\n{self.log.read_text()}")
        steps = [json.loads(line) for line in self.metrics.read_text().splitlines()]
        seconds = statistics.median(step["step_seconds"] for step in steps[self.args.warmup:])
        return {"tokens_per_second": self.tokens_per_step / seconds,
                "peak_rss_bytes": max(step["peak_rss_bytes"] for step in steps),
                "seconds_to_first_step": self.first}


def run_trireme(args, data, ranks, batch, threads, copies=1):
    """`copies` of the same job at once; their tokens/s together."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        jobs = [Job(args, data, ranks, batch, threads, Path(folder) / str(copy)) for copy in range(copies)]
        while any([job.is_running() for job in jobs]):
            time.sleep(0.002 if any(job.first is None for job in jobs) else 0.05)
        results = [job.result() for job in jobs]
    return {metric: combine(result[metric] for result in results)
            for metric, combine in zip(METRICS, (sum, max, max))}


def run_independent(args, data, ranks, batch, threads):
    return run_trireme(args, data, 1, batch, threads, copies=ranks)


def compare(args, data, ranks, batch):
    """Medians over the rounds; the programs take turns at going first."""
    threads = max(1, args.cores // ranks)
    runners = [("pytorch", run_pytorch), ("trireme", run_trireme)]
    if ranks > 1:
        runners.append(("independent", run_independent))
    results = {name: [] for name, _ in runners}
    for round_index in range(args.rounds):
        for name, runner in runners if round_index % 2 == 0 else reversed(runners):
            results[name].append(runner(args, data, ranks, batch, threads))
    row = {"ranks": ranks, "sequences_per_rank": batch, "threads_per_rank": threads}
    for metric in METRICS:
        theirs, ours = (statistics.median(r[metric] for r in results[name])
                        for name in ("pytorch", "trireme"))
        row[metric] = {"pytorch": theirs, "trireme": ours, "ratio": ours / theirs}
    if ranks > 1:
        alone = statistics.median(r["tokens_per_second"] for r in results["independent"])
        row["of_independent"] = row["tokens_per_second"]["trireme"] / alone
    return row


def shown(metric, value):
    return {"tokens_per_second": f"{value:.0f}", "peak_rss_bytes": f"{value / 2**20:.0f} MiB",
            "seconds_to_first_step": f"{value:.2f} s"}[metric]


def table(rows):
    lines = ["| ranks | sequences a rank | " + " | ".join(
        f"{name}: PyTorch | trireme | ratio" for name in METRICS.values()) +
        " | of independent |", "|" + "---|" * (3 + 3 * len(METRICS))]
    for row in rows:
        cells = [str(row["ranks"]), str(row["sequences_per_rank"])]
        for metric in METRICS:
            cells += [shown(metric, row[metric]["pytorch"]), shown(metric, row[metric]["trireme"]),
                      f"{row[metric]['ratio']:.2f}"]
        cells.append(f"{row['of_independent']:.0%}" if "of_independent" in row else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {cpu}, {memory:.0f} GiB of memory"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trireme", default=str(ROOT / "build/release/bin/trireme"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5, help="first steps left out of each median")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 1], help="sequences a rank")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")
    args = parser.parse_args()
    if not 0 <= args.warmup < args.steps:
        parser.error(f"--warmup {args.warmup} must lie below --steps {args.steps}")

    with tempfile.TemporaryDirectory(prefix="trireme-bench-data-") as folder:
        # Both read the same tokens; what they are does not change the work.
        text, data = Path(folder) / "text", Path(folder) / "tokens"
        text.write_bytes(os.urandom(4 << 20))
        checked([args.trireme, "data", "prepare", "--input", str(text), "--tokenizer", "bytes",
                 "--output", str(data)])
        rows = []
        for batch in args.batch:
            for ranks in args.ranks:
                rows.append(compare(args, data, ranks, batch))
                print(f"bench: {ranks} ranks, {batch} sequences a rank done", file=sys.stderr)

    print(json.dumps(rows, indent=1) if args.json else table(rows))
    if not args.no_note:
        today = datetime.date.today().isoformat()
        note = ROOT / "benchmarks" / "results" / f"{today}-train-vs-pytorch.md"
        note.parent.mkdir(exist_ok=True)
        note.write_text(f"""# trireme beside PyTorch, {today}

Machine: {machine()}; torch {importlib.metadata.version("torch")}. Llama: 6 layers, width 256, 4 heads, ffn 640,
vocabulary 8192, T 256, fp32; PyTorch eager with fused AdamW, DDP over Gloo, {args.cores} cores shared by the ranks.
Medians of {args.rounds} rounds of {args.steps} steps (the first {args.warmup} left out), alternating. Ratio: trireme / PyTorch.
Of independent: tokens/s over those of as many one-rank trireme processes at once, which do not communicate.

{table(rows)}

Repeat: `make bench`.
""")
        print(f"bench: wrote {note.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
