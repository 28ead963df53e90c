#!/usr/bin/env python3
"""Draws the loss of runs as SVG: plot_metrics.py OUT.svg LABEL=RUN_FOLDER [LABEL=RUN_FOLDER ...]

Reads metrics.jsonl with the standard library alone; a dashed line is the validation loss.
"""
import json
import pathlib
import sys

from svg_plot import COLOURS, Curve, draw


def read(folder):
    """The lines that count: of each step those of its highest epoch, none of an earlier one after that one's last."""
    lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    newest = max((line.get("epoch", 0), line["step"]) for line in lines)
    of_step = {}
    for line in lines:
        of_step[line["step"]] = max(of_step.get(line["step"], 0), line.get("epoch", 0))
    return [line for line in lines if line.get("epoch", 0) == of_step[line["step"]]
            and (line["step"] <= newest[1] or line.get("epoch", 0) == newest[0])]


def main():
    if len(sys.argv) < 3 or any("=" not in run for run in sys.argv[2:]):
        sys.exit(__doc__)
    runs = [(label, read(folder)) for label, folder in (a.split("=", 1) for a in sys.argv[2:])]
    curves = []
    for i, (label, run) in enumerate(runs):
        colour = COLOURS[i % len(COLOURS)]
        curves.append(Curve([(m["step"], m["loss"]) for m in run], colour, label))
        checks = [(m["step"], m["validation_loss"]) for m in run if "validation_loss" in m]
        if checks:
            curves.append(Curve(checks, colour, dashed=True))
    losses = [m["loss"] for _, run in runs for m in run]
    plot = draw(curves, min(losses) * 0.95, max(losses) * 1.02, "loss, nats per token")
    pathlib.Path(sys.argv[1]).write_text(plot)


if __name__ == "__main__":
    main()
