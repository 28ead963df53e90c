"""What gradient compression costs in loss: the demo's model on two ranks, trained once per rule.

Prints, for each rule of train.compression: the bytes per step that a rank's gradients put on the wire,
the training loss over the last steps, the validation loss, and how far it is from training without
compression. As a yardstick the plain run is repeated with two other seeds. Writes a dated note to
benchmarks/results/. Losses do not depend on the machine's load; times are not measured.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, add_arguments, train, write_note

RUNS = {
    "none": [],
    "none, seed 43": ["--train.seed=43"],
    "none, seed 44": ["--train.seed=44"],
    "bf16": ["--train.compression=bf16"],
    "fp16": ["--train.compression=fp16"],
    "int8": ["--train.compression=int8"],
    "powersgd, rank 4": ["--train.compression=powersgd"],
    "powersgd, rank 16": ["--train.compression=powersgd", "--train.compression_rank=16"],
    "topk, 1 %": ["--train.compression=topk"],
    "topk, 10 %": ["--train.compression=topk", "--train.compression_ratio=0.1"],
    "topk, 1 %, warm-up 50": ["--train.compression=topk", "--train.compression_warmup=50"],
}


def measure(args, options):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        steps = train(args.trireme.resolve(), args.config.resolve(), folder, "--ranks=2", f"--train.steps={args.steps}",
                      f"--train.evaluate_interval={args.steps}", "--train.evaluate_sequences=32", *options)
    return {"gradient_bytes": steps[-1]["gradient_bytes"], "validation_loss": steps[-1]["validation_loss"],
            "loss": statistics.mean(step["loss"] for step in steps[-args.last:])}


def table(results):
    plain = results["none"]
    lines = ["| train.compression | bytes per step and rank | relative to none | loss, last steps "
             "| validation loss | above none |",
             "|---|---|---|---|---|---|"]
    for name, result in results.items():
        share = result["gradient_bytes"] / plain["gradient_bytes"]
        lines.append(f"| {name} | {result['gradient_bytes'] / 1e6:.3f} MB | {share:.1%} | {result['loss']:.3f} | "
                     f"{result['validation_loss']:.3f} | {result['validation_loss'] - plain['validation_loss']:+.3f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--config", default=ROOT / "examples/demo.toml", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--last", type=int, default=20, help="steps that the training loss is the mean of")
    parser.add_argument("--rules", nargs="+", choices=RUNS, default=list(RUNS), metavar="RULE",
                        help="among: " + "; ".join(RUNS))
    args = parser.parse_args()

    results = {}
    for name in ["none", *(rule for rule in args.rules if rule != "none")]:
        results[name] = measure(args, RUNS[name])
        print(f"bench: {name} done, validation loss {results[name]['validation_loss']:.3f}", file=sys.stderr)
    print(json.dumps(results, indent=1) if args.json else table(results))
    if not args.no_note:
        today = datetime.date.today().isoformat()
        write_note(f"{today}-compression.md", f"""# Gradient compression, {today}

{args.config.name} on two ranks, {args.steps} steps; the training loss is the mean of the last {args.last}.

{table(results)}

Repeat: `benchmarks/compression.py`.
""")


if __name__ == "__main__":
    main()
