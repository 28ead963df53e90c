"""Compares predicted with measured steps and memory on this machine, over layouts of one to four ranks.

Measures the machine (`trireme bench device`), then trains some steps of each layout and predicts the same: the median step
and the peak memory of a rank. Prints a table, and keeps it in benchmarks/results.

    benchmarks/plan/predicted_steps.py          # 5 minutes on two cores
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "benchmarks/train_vs_pytorch"))
from report import machine  # noqa: E402
from trireme_runs import add_arguments, train, write_note  # noqa: E402

DENSE, SPARSE = "examples/demo.toml", "examples/moe.toml"
MIXED = ["--model.width=384", "--model.ffn_width=1024"]
# Config, ranks, and what differs from it.
CASES = [(DENSE, ranks, options) for ranks, options in [
    (1, []), (1, ["--train.recompute=full"]), (1, ["--train.recompute=selective"]), (1, MIXED),
    (1, ["--train.micro_batch=16"]), (1, ["--train.micro_batch=2"]), (1, ["--model.layers=8"]),
    (1, ["--model.sequence_length=256", "--train.micro_batch=4"]),
    (2, []), (2, ["--parallel.zero=1"]), (2, ["--parallel.zero=2"]), (2, ["--parallel.zero=3"]),
    (2, ["--parallel.tensor=2"]), (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    (2, ["--parallel.context=2"]), (2, ["--parallel.context=2", "--parallel.context_form=all-to-all", "--model.kv_heads=6"]),
    (2, ["--parallel.pipeline=2", "--train.micro_batch=2"]),
    (2, ["--parallel.pipeline=2", "--train.micro_batch=2", "--parallel.schedule=interleaved"]),
    (2, ["--parallel.pipeline=2", "--train.micro_batch=4", "--parallel.schedule=zero-bubble"]),
    (2, MIXED), (2, [*MIXED, "--parallel.zero=3"]), (2, [*MIXED, "--parallel.tensor=2"]),
    (4, ["--train.micro_batch=4"]), (4, ["--parallel.tensor=2", "--train.micro_batch=4"]),
    (4, ["--parallel.pipeline=2", "--train.micro_batch=2"]), (4, ["--parallel.zero=3", "--train.micro_batch=4"]),
]] + [(SPARSE, ranks, options) for ranks, options in [
    (1, ["--parallel.expert=1"]), (2, []), (2, ["--parallel.expert=1"]), (4, ["--train.micro_batch=4"]),
]]


def run(trireme, *words):
    return subprocess.run([trireme, *map(str, words)], check=True, capture_output=True, text=True, cwd=ROOT).stdout


def measure(trireme, config, ranks, options, steps):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        lines = train(trireme, ROOT / config, folder, f"--ranks={ranks}", f"--train.steps={steps}",
                      "--checkpoint.interval=0", *options)
    return (statistics.median(line["step_seconds"] for line in lines[3:]),
            max(line["peak_rss_bytes"] for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    trireme = args.trireme.resolve()
    rows, clusters = [], {}
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        for config, ranks, options in CASES:
            if ranks not in clusters:
                clusters[ranks] = Path(folder) / f"{ranks}.toml"
                run(trireme, "bench", "device", "--ranks", ranks, "--output", clusters[ranks])
            seconds, rss = measure(trireme, config, ranks, options, args.steps)
            step = json.loads(run(trireme, "simulate", config, clusters[ranks], "--json", *options))
            name = f"{Path(config).stem}, {ranks} ranks {' '.join(word.removeprefix('--') for word in options)}"
            rows.append((name, seconds, step["step_seconds"], rss, step["peak_memory_bytes"]))
            print(f"{name:90} {1e3 * seconds:8.1f} {1e3 * step['step_seconds']:8.1f} ms "
                  f"{100 * (step['step_seconds'] / seconds - 1):+6.1f} %   {rss / 2**20:7.1f} "
                  f"{step['peak_memory_bytes'] / 2**20:7.1f} MiB {100 * (step['peak_memory_bytes'] / rss - 1):+6.1f} %",
                  file=sys.stderr)
    errors = [abs(predicted / seconds - 1) for _, seconds, predicted, _, _ in rows]
    of_memory = [abs(predicted / rss - 1) for *_, rss, predicted in rows]
    summary = {"step": statistics.mean(errors), "memory": statistics.mean(of_memory),
               "step_median": statistics.median(errors), "memory_median": statistics.median(of_memory)}
    table = "\n".join(f"| {name} | {1e3 * seconds:.1f} | {1e3 * predicted:.1f} | {100 * (predicted / seconds - 1):+.0f} % | "
                      f"{rss / 2**20:.0f} | {bytes_ / 2**20:.0f} | {100 * (bytes_ / rss - 1):+.0f} % |"
                      for name, seconds, predicted, rss, bytes_ in rows)
    if not args.no_note:
        date = datetime.date.today().isoformat()
        write_note(f"{date}-predicted-steps.md", f"""# Predicted and measured steps on one machine, {date}

Machine: {machine()}. `trireme simulate` on what `trireme bench device` measured, beside the median of {args.steps - 3} steps.
Mean absolute error: step {100 * summary['step']:.1f} %, peak memory of a rank {100 * summary['memory']:.1f} %.

| layout | measured, ms | predicted, ms | error | measured, MiB | predicted, MiB | error |
|---|---|---|---|---|---|---|
{table}

Repeat: `benchmarks/plan/predicted_steps.py`.
""")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
