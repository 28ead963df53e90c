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

sys.path.insert(0, str(ROOT / "tools"))
from svg_plot import COLOURS, Curve, draw  # noqa: E402

BOUND = 1e-4
LAYOUTS = {
    "data 2": (2, []),
    "tensor 2": (2, ["--parallel.tensor=2"]),
    "tensor 2, sequence": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "pipeline 2": (2, ["--parallel.pipeline=2"]),
    "context 2": (2, ["--parallel.context=2"]),
    "tensor 2 x pipeline 2": (4, ["--parallel.tensor=2", "--parallel.pipeline=2"]),
}
LOW, HIGH = -9, -3  # powers of ten that the plot shows


def differences(curve, reference):
    return [abs(loss - expected) / abs(expected) for loss, expected in zip(curve, reference, strict=True)]


def draw_differences(curves):
    """Relative differences over steps as SVG, on a logarithmic scale; equal bits lie on its floor."""
    power = lambda value: max(LOW, math.log10(value or 1e-99))
    lines = [Curve([(step, power(value)) for step, value in enumerate(values, 1)], colour, name)
             for colour, (name, values) in zip(COLOURS, curves.items())]
    y_ticks = [(tick, f"1e{tick}" if tick > LOW else "0") for tick in range(LOW, HIGH + 1)]
    return draw(lines, LOW, HIGH, "difference of the loss from data parallelism, relative", y_ticks=y_ticks,
                bound=math.log10(BOUND), legend="bottom")


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
        args.svg.write_text(draw_differences(curves))
    print(json.dumps(worst) if args.json else
          "\n".join(f"{name:24} {value:.1e}" for name, value in worst.items()))
    return 1 if max(worst.values()) > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
