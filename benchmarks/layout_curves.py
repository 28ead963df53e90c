"""Checks that layouts train alike: compares the losses of the demo's model under several layouts.

Trains the same steps in fp32 under data, tensor, pipeline and context parallelism and a combination,
from the same weights on the same sequences. Draws the relative difference of each loss from that of the
data-parallel run, and exits with 1 when one exceeds 1e-4 at any step.

    benchmarks/layout_curves.py --data data/python --svg docs/images/layouts_loss.svg
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, add_arguments, train

BOUND = 1e-4
LAYOUTS = {
    "data 2": (2, []),
    "tensor 2": (2, ["--parallel.tensor=2"]),
    "tensor 2, sequence": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "pipeline 2": (2, ["--parallel.pipeline=2"]),
    "context 2": (2, ["--parallel.context=2"]),
    "tensor 2 x pipeline 2": (4, ["--parallel.tensor=2", "--parallel.pipeline=2"]),
}
COLOURS = ["#1f5fa8", "#c2571a", "#3a8a3a", "#7a4ba0", "#8a6d1f"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 64, 16, 28, 44
LOW, HIGH = -9, -3  # powers of ten that the plot shows


def differences(curve, reference):
    return [abs(loss - expected) / abs(expected) for loss, expected in zip(curve, reference, strict=True)]


def draw(curves, steps):
    """Relative differences over steps as SVG, on a logarithmic scale; equal bits lie on its floor."""
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * step / steps
    y = lambda value: TOP + (HEIGHT - TOP - BOTTOM) * (HIGH - max(LOW, math.log10(value or 1e-99))) / (HIGH - LOW)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for power in range(LOW, HIGH + 1):
        label = f"1e{power}" if power > LOW else "0"
        out.append(f'<path d="M{LEFT} {y(10.0**power):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(10.0**power) + 4:.1f}" text-anchor="end">{label}</text>')
    for step in range(0, steps + 1, max(1, steps // 5)):
        out.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    out.append(f'<path d="M{LEFT} {y(BOUND):.1f}H{WIDTH - RIGHT}" stroke="#b00" stroke-dasharray="5 4"/>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
    out.append(f'<text x="{LEFT}" y="{TOP - 10}">difference of the loss from data parallelism, relative</text>')
    for i, (name, values) in enumerate(curves.items()):
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in enumerate(values, 1))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[i]}" stroke-width="1.4"/>'
                   f'<text x="{WIDTH - RIGHT - 8}" y="{HEIGHT - BOTTOM - 16 * (len(curves) - i)}" text-anchor="end" '
                   f'fill="{COLOURS[i]}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--config", default=ROOT / "examples/demo.toml", type=Path)
    parser.add_argument("--data", required=True, help="prefix of prepared tokens")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--svg", type=Path, help="where to draw the differences")
    args = parser.parse_args()
    losses = {}
    for name, (ranks, options) in LAYOUTS.items():
        with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
            steps = train(args.trireme.resolve(), args.config, folder, f"--ranks={ranks}", f"--data.path={args.data}",
                          f"--train.steps={args.steps}", *options)
        losses[name] = [step["loss"] for step in steps]
        print(f"bench: {name}: last loss {losses[name][-1]:.6f}", file=sys.stderr)
    reference = losses.pop("data 2")
    curves = {name: differences(curve, reference) for name, curve in losses.items()}
    worst = {name: max(values) for name, values in curves.items()}
    if args.svg:
        args.svg.write_text(draw(curves, args.steps))
    print(json.dumps(worst) if args.json else
          "\n".join(f"{name:24} {value:.1e}" for name, value in worst.items()))
    return 1 if max(worst.values()) > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
