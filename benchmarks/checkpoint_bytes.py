"""What each save of a run newly writes: the demo's AdamW run with and without zstd, and a model of mostly frozen weights.

Counts the files of a checkpoint that no earlier one of the run has. Seconds are those that training waits for a save
with checkpoint.mode = "sync". In the second run every weight but the last block's stays as it is
(optimizer.groups: rate=0), first with SGD, which keeps nothing of a weight, then with AdamW, whose moments change.
Prints both tables and writes a dated note to benchmarks/results/.
"""

import argparse
import datetime
import json
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, add_arguments, checked, write_note

sys.path.insert(0, str(ROOT / "benchmarks/train_vs_pytorch"))
from report import machine  # noqa: E402

MODEL = ["--model.layers=12", "--model.width=768", "--model.heads=12", "--model.kv_heads=12", "--model.ffn_width=2048",
         "--model.sequence_length=64", "--train.global_batch=2", "--train.micro_batch=1"]
FROZEN = ["--optimizer.groups=model.layers.11.*: rate=1; *: rate=0"]
OPTIMIZERS = {"SGD": ["--optimizer.name=sgd", "--optimizer.momentum=0"], "AdamW": ["--optimizer.name=adamw"]}


def saves_of(args, saves, interval, *options):
    """Bytes newly written and seconds of each save of a new run."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-", dir=args.folder) as folder:
        # One step more than the last save: its line tells how long that save took.
        checked([args.trireme.resolve(), "train", args.config.resolve(), "--ranks=2", f"--output.folder={folder}/run",
                 f"--data.path={args.data.resolve()}", f"--train.steps={saves * interval + 1}", "--checkpoint.mode=sync",
                 f"--checkpoint.interval={interval}", f"--checkpoint.keep={saves + 1}", *options])
        lines = (Path(folder) / "run/metrics.jsonl").read_text().splitlines()
        seconds = [step["checkpoint_stall_seconds"] for step in map(json.loads, lines)
                   if "checkpoint_stall_seconds" in step]
        seen, written = set(), []
        for step in range(interval, saves * interval + 1, interval):
            files = [path.stat() for path in (Path(folder) / f"run/checkpoints/step-{step:06}").iterdir()]
            written.append(sum(file.st_size for file in files if file.st_ino not in seen))
            seen.update(file.st_ino for file in files)
        return [{"bytes": each, "seconds": took} for each, took in zip(written, seconds, strict=True)]


def run_table(runs):
    lines = [f"| save | {' | '.join(f'{name}: written | seconds' for name in runs)} |", f"|---|{'---|' * 2 * len(runs)}"]
    for number, row in enumerate(zip(*runs.values(), strict=True), 1):
        lines.append(f"| {number} | " + " | ".join(f"{save['bytes'] / 1e6:.1f} MB | {save['seconds']:.2f}" for save in row) +
                     " |")
    means = [(sum(save["bytes"] for save in saves) / len(saves) / 1e6, sum(save["seconds"] for save in saves) / len(saves))
             for saves in runs.values()]
    lines.append("| mean | " + " | ".join(f"{size:.1f} MB | {took:.2f}" for size, took in means) + " |")
    return "\n".join(lines)


def frozen_table(runs):
    lines = ["| optimizer | first save | second save | of the first | seconds, first and second |", "|---|---|---|---|---|"]
    for name, (first, second) in runs.items():
        lines.append(f"| {name} | {first['bytes'] / 1e6:.1f} MB | {second['bytes'] / 1e6:.1f} MB | "
                     f"{second['bytes'] / first['bytes']:.1%} | {first['seconds']:.2f}, {second['seconds']:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--config", default=ROOT / "examples/demo.toml", type=Path)
    parser.add_argument("--data", default=ROOT / "data/python", type=Path, help="prefix of the token files")
    parser.add_argument("--folder", type=Path, help="disk to save on (the temporary folder)")
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--interval", type=int, default=10, help="steps between saves")
    args = parser.parse_args()
    runs, frozen = {}, {}
    for name in ("none", "zstd"):
        runs[name] = saves_of(args, args.saves, args.interval, f"--checkpoint.compression={name}")
        print(f"bench: {name} done", file=sys.stderr)
    for name, options in OPTIMIZERS.items():
        frozen[name] = saves_of(args, 2, 1, *MODEL, *FROZEN, *options)
        print(f"bench: {name} of a frozen model done", file=sys.stderr)
    if args.json:
        print(json.dumps({"runs": runs, "frozen": frozen}, indent=1))
    else:
        print(run_table(runs), frozen_table(frozen), sep="\n\n")
    if not args.no_note:
        today = datetime.date.today().isoformat()
        write_note(f"{today}-checkpoint-bytes.md", f"""# What each save newly writes, {today}

Machine: {machine()}. {args.config.name}, AdamW, two ranks, a save every {args.interval} steps, by `checkpoint.compression`:

{run_table(runs)}

91 million weights (12 blocks of width 768, vocabulary 4096), of which all but the last block stay as they are:

{frozen_table(frozen)}

Repeat: `benchmarks/checkpoint_bytes.py`.
""")


if __name__ == "__main__":
    main()
