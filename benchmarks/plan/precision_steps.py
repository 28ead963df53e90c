"""Compares predicted with measured steps in fp32 and bf16, over widths and ranks, on this machine.

The machine is measured (`trireme bench device`) before the first case and after each, and a case's prediction is the mean of
those just before and after it, as a shared machine changes its speed within minutes. With --other, another version of the
program measures and predicts too. Prints a table, and keeps it in benchmarks/results.

    benchmarks/plan/precision_steps.py          # 15 minutes on two cores
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
from trireme_runs import add_arguments, prepare_random_tokens, shape, train, write_note  # noqa: E402

CONFIG = """
[model]
family = "llama"
sequence_length = 256
vocab_size = 8192
[train]
micro_batch = 8
gradient_clip = 1.0
[optimizer]
warmup_steps = 0
"""
UNCOUNTED = 3  # steps that allocate


def measure_device(program, ranks, path, seconds):
    subprocess.run([program, "bench", "device", "--ranks", str(ranks), "--seconds", str(seconds), "--output", path],
                   check=True, capture_output=True)
    return path


def predict(program, folder, cluster, options):
    text = subprocess.run([program, "simulate", folder / "config.toml", cluster, "--json", *options], check=True,
                          capture_output=True, text=True).stdout
    return json.loads(text)["step_seconds"]


def options_of(folder, ranks, precision, width, steps):
    return [*shape(6, width), f"--train.precision={precision}", f"--train.global_batch={8 * ranks}",
            f"--data.path={folder / 'tokens'}", f"--train.steps={UNCOUNTED + steps}"]


def measure_steps(program, folder, ranks, options):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as run:
        # The run would measure the machine once more at its end.
        lines = train(program, folder / "config.toml", run, f"--ranks={ranks}", "--parallel.cluster=none", *options)
    return statistics.median(line["step_seconds"] for line in lines[UNCOUNTED:])


def in_percent(seconds, predicted):
    return f"{100 * (predicted / seconds - 1):+.0f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--other", type=Path, help="a program to compare with, such as an older version")
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=5, help="steps that count")
    parser.add_argument("--rounds", type=int, default=1, help="of all cases")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement of the machine")
    args = parser.parse_args()
    programs = [program.resolve() for program in (args.trireme, args.other) if program]
    found = {}  # by case: seconds, and each program's prediction, of every round
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        prepare_random_tokens(programs[0], folder)
        (folder / "config.toml").write_text(CONFIG)
        for ranks in args.ranks * args.rounds:
            def devices():
                return [measure_device(program, ranks, Path(tempfile.mkdtemp(dir=folder)) / "cluster.toml", args.seconds)
                        for program in programs]

            before = devices()
            for precision in args.precisions:
                for width in args.widths:
                    options = options_of(folder, ranks, precision, width, args.steps)
                    seconds = measure_steps(programs[0], folder, ranks, options)
                    after = devices()
                    predicted = [statistics.mean(predict(program, folder, cluster, options) for cluster in clusters)
                                 for program, *clusters in zip(programs, before, after)]
                    before = after
                    found.setdefault((ranks, precision, width), []).append([seconds, *predicted])
                    print(f"{ranks} ranks, {precision}, width {width:5}: {1e3 * seconds:8.1f} ms; "
                          + ", ".join(f"{1e3 * one:8.1f} ({in_percent(seconds, one)})" for one in predicted),
                          file=sys.stderr, flush=True)
    rows = []
    for (ranks, precision, width), rounds in found.items():
        # The round in the middle, by the ratio.
        middle = sorted(rounds, key=lambda one: one[1] / one[0])[len(rounds) // 2]
        rows.append({"ranks": ranks, "precision": precision, "width": width, "seconds": middle[0],
                     "predicted": middle[1], "other": middle[2:], "errors": [one[1] / one[0] - 1 for one in rounds]})
    mean = statistics.mean(abs(row["predicted"] / row["seconds"] - 1) for row in rows)
    others = " other version |" if args.other else ""
    table = "\n".join(
        f"| {row['ranks']} | {row['precision']} | {row['width']} | {1e3 * row['seconds']:.0f} | "
        f"{1e3 * row['predicted']:.0f} ({in_percent(row['seconds'], row['predicted'])}) |"
        + "".join(f" {1e3 * one:.0f} ({in_percent(row['seconds'], one)}) |" for one in row["other"]) for row in rows)
    if not args.no_note:
        date = datetime.date.today().isoformat()
        write_note(f"{date}-precision-steps.md", f"""# Predicted and measured steps in fp32 and bf16, {date}

Machine: {machine()}. A Llama of 6 layers, ffn 2.5 times the width, vocabulary 8,192, T 256, 8 sequences per rank, AdamW,
gradient norm at most 1; two ranks under DDP. `trireme simulate` on what `trireme bench device` measured just before and just
after, beside the median of {args.steps} steps. Mean absolute error {100 * mean:.1f} %; of {args.rounds} rounds, the middle one of
each case.

| ranks | precision | width | measured, ms | predicted, ms |{others}
|---|---|---|---|---|{"---|" if args.other else ""}
{table}

Repeat: `benchmarks/plan/precision_steps.py --steps {args.steps} --rounds {args.rounds}`.
""")
    print(json.dumps(rows if args.json else {"step": mean}))


if __name__ == "__main__":
    main()
