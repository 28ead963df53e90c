"""Trains a mixture of experts and a dense model with as many multiplications a token, from several seeds.

examples/moe.toml has eight experts of which a token uses two, and a shared one; these three are together as wide as the
feed-forward of examples/demo.toml. Both train on the same sequences with the same settings. Draws their validation losses, and
exits with 1 when the sparse model does not end lower with every seed.

    benchmarks/sparse_vs_dense.py --svg docs/images/sparse_vs_dense.svg     # 15 minutes on two cores
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, add_arguments, train, write_note

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "benchmarks/train_vs_pytorch"))
from report import machine  # noqa: E402
from svg_plot import COLOURS, Curve, draw  # noqa: E402

MODELS = {"dense": "examples/demo.toml", "8 experts, 2 a token, and 1 shared": "examples/moe.toml"}


def validation(steps):
    return [(step["step"], step["validation_loss"]) for step in steps if step.get("validation_loss")]


def draw_losses(curves, low, high):
    lines = []
    for colour, (name, runs) in zip(COLOURS, curves.items()):
        lines += [Curve(points, colour, name if i == 0 else "") for i, points in enumerate(runs)]
    return draw(lines, low, high, "validation loss, a line for each seed")


def note(args, curves, seconds):
    rows = [f"| {name} | " + " | ".join(f"{points[-1][1]:.4f}" for points in runs) +
            f" | {statistics.mean(points[-1][1] for points in runs):.4f} | {seconds[name]:.3f} s |"
            for name, runs in curves.items()]
    seeds = " | ".join(f"seed {seed}" for seed in args.seeds)
    return f"""# A mixture of experts beside a dense model, {datetime.date.today().isoformat()}

Machine: {machine()}. The demo's text; {args.steps} steps of 16 sequences of 128 tokens, two ranks, fp32; settings of
examples/demo.toml and examples/moe.toml. Validation loss after the last step, and the median time of a step.

| model | {seeds} | mean | step |
|{" --- |" * (len(args.seeds) + 3)}
{chr(10).join(rows)}

Repeat: `benchmarks/sparse_vs_dense.py --steps {args.steps} --svg docs/images/sparse_vs_dense.svg`.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--svg", type=Path, help="where to draw the losses")
    args = parser.parse_args()
    curves, seconds = {name: [] for name in MODELS}, {name: [] for name in MODELS}
    for seed in args.seeds:
        for name, config in MODELS.items():
            with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
                steps = train(args.trireme.resolve(), ROOT / config, folder, "--ranks=2", f"--train.steps={args.steps}",
                              f"--train.seed={seed}", "--train.evaluate_interval=25", "--train.evaluate_sequences=256")
            curves[name].append(validation(steps))
            seconds[name] += [step["step_seconds"] for step in steps]
            print(f"bench: seed {seed}, {name}: {curves[name][-1][-1][1]:.4f}", file=sys.stderr)
    last = {name: [points[-1][1] for points in runs] for name, runs in curves.items()}
    dense, sparse = last.values()
    if args.svg:
        shown = [loss for runs in curves.values() for points in runs for _, loss in points[3:]]
        args.svg.write_text(draw_losses(curves, min(shown) - 0.05, max(shown)))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    if not args.no_note:
        write_note(f"{datetime.date.today().isoformat()}-sparse-vs-dense.md", note(args, curves, medians))
    print(json.dumps(last) if args.json else
          "\n".join(f"{name:34} {' '.join(f'{loss:.4f}' for loss in losses)}" for name, losses in last.items()))
    return 0 if all(s < d for s, d in zip(sparse, dense, strict=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
