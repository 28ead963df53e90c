"""What smaller numbers cost in loss: one model, trained with each optimizer.state_dtype, or with --vary precision in
each precision, and several seeds.

Prints, for each optimizer and dtype: the bytes of states of all parameters, the validation loss as a mean over the
seeds, how far it is from fp32's with the same seed (mean and largest magnitude), and the median time of a step. The
spread of fp32's losses over the seeds is the yardstick. Writes a dated note to benchmarks/results/.

    benchmarks/state_dtypes.py
    benchmarks/state_dtypes.py --vary precision --optimizers adamw --steps 600
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, add_arguments, train, write_note

# The first of each is what the others are compared with.
VARIANTS = {
    "states": {dtype: [f"--optimizer.state_dtype={dtype}"] for dtype in ("fp32", "bf16", "int8")},
    "precision": {
        "fp32": [],
        "fp32, products in bf16": ["--train.fp32_products=bf16"],
        "fp32, products in bf16x3": ["--train.fp32_products=bf16x3"],
        "bf16": ["--train.precision=bf16"],
        "bf16, sums in fp32": ["--train.precision=bf16", "--train.reduce_dtype=fp32"],
        "fp16": ["--train.precision=fp16"],
    },
}
TITLES = {"states": ("state-dtypes", "Smaller optimizer states"), "precision": ("precisions", "Losses by precision")}
OPTIMIZERS = {
    "adamw": [],
    "adamw, beta2 0.999": ["--optimizer.beta2=0.999"],
    "lion": ["--optimizer.name=lion", "--optimizer.learning_rate=2e-4"],
    "muon": ["--optimizer.name=muon", "--optimizer.learning_rate=2e-3"],
}


def state_bytes(folder):
    """Of the newest checkpoint: of the states that are not master weights."""
    newest = max((Path(folder) / "checkpoints").glob("step-*"))
    size = {"F32": 4, "BF16": 2, "U8": 1}
    total = 0
    for name, tensor in json.loads((newest / "manifest.json").read_text())["tensors"].items():
        if name.startswith("optimizer.") and not name.startswith("optimizer.master."):
            count = 1
            for length in tensor["shape"]:
                count *= length
            total += count * size[tensor["dtype"]]
    return total


def measure(args, options):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        steps = train(args.trireme.resolve(), args.config.resolve(), folder, f"--ranks={args.ranks}",
                      f"--train.steps={args.steps}", f"--train.evaluate_interval={args.steps}",
                      "--train.evaluate_sequences=64", f"--checkpoint.interval={args.steps}", *options)
        return {"validation_loss": steps[-1]["validation_loss"], "state_bytes": state_bytes(folder),
                "seconds": statistics.median(step["step_seconds"] for step in steps[2:])}


def table(results, seeds):
    lines = ["| optimizer | numbers | MB of states | validation loss | from fp32, same seed: mean | largest | step |",
             "|---|---|---|---|---|---|---|"]
    for optimizer, dtypes in results.items():
        first = next(iter(dtypes))
        plain = dtypes[first]
        for dtype, runs in dtypes.items():
            losses = [run["validation_loss"] for run in runs]
            apart = [run["validation_loss"] - same["validation_loss"] for run, same in zip(runs, plain)]
            milliseconds = 1e3 * statistics.median(run["seconds"] for run in runs)
            from_fp32 = "| |" if dtype == first else f"{statistics.mean(apart):+.4f} | {max(map(abs, apart)):.4f} |"
            lines.append(f"| {optimizer} | {dtype} | {runs[0]['state_bytes'] / 1e6:.2f} | "
                         f"{statistics.mean(losses):.4f} | {from_fp32} {milliseconds:.0f} ms |")
        spread = [run["validation_loss"] for run in plain]
        lines.append(f"| | {first}, largest minus smallest of {seeds} seeds | | {max(spread) - min(spread):.4f} | | | |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--config", default=ROOT / "examples/demo.toml", type=Path)
    parser.add_argument("--vary", choices=VARIANTS, default="states")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS), metavar="NAME",
                        help="among: " + "; ".join(OPTIMIZERS))
    parser.add_argument("--numbers", nargs="+", metavar="NAME",
                        help="only these, the first of which the others are compared with")
    args = parser.parse_args()
    variants = VARIANTS[args.vary]
    unknown = [name for name in args.numbers or () if name not in variants]
    if unknown:
        parser.error(f"--numbers {unknown[0]}; there are: {'; '.join(variants)}")
    variants = {name: variants[name] for name in args.numbers or variants}

    results = {}
    for name in args.optimizers:
        results[name] = {}
        for dtype, options in variants.items():
            results[name][dtype] = [measure(args, [f"--train.seed={seed}", *options, *OPTIMIZERS[name]])
                                    for seed in args.seeds]
            print(f"bench: {name}, {dtype} done", file=sys.stderr)
    print(json.dumps(results, indent=1) if args.json else table(results, len(args.seeds)))
    if not args.no_note:
        today = datetime.date.today().isoformat()
        name, title = TITLES[args.vary]
        vary = "" if args.vary == "states" else f" --vary {args.vary}"
        if args.numbers:
            vary += " --numbers " + " ".join(f'"{name}"' for name in args.numbers)
        write_note(f"{today}-{name}.md", f"""# {title}, {today}

{args.config.name} on {args.ranks} ranks, {args.steps} steps, seeds {', '.join(map(str, args.seeds))}.

{table(results, len(args.seeds))}

Repeat: `benchmarks/state_dtypes.py{vary} --optimizers {' '.join(f'"{name}"' for name in args.optimizers)} --steps {args.steps}`.
""")


if __name__ == "__main__":
    main()
