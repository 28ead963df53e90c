#!/usr/bin/env python3
"""Draws the loss of runs as SVG: plot_metrics.py OUT.svg LABEL=RUN_FOLDER [LABEL=RUN_FOLDER ...]

Reads metrics.jsonl with the standard library alone; a dashed line is the validation loss.
"""
import json
import pathlib
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 56, 16, 28, 44
COLOURS = ["#1f5fa8", "#c2571a", "#3a8a3a", "#7a4ba0", "#8a6d1f"]


def read(folder):
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def ticks(low, high, count=6):
    """Round numbers that cover [low, high]."""
    raw = (high - low) / count
    power = 10.0 ** len(str(int(raw))) / 10 if raw >= 1 else 0.1
    step = next(power * m for m in (1, 2, 5, 10, 20, 50) if power * m >= raw)
    first = int(low / step) * step
    return [t for t in (first + i * step for i in range(60)) if low <= t <= high]


def main():
    if len(sys.argv) < 3 or any("=" not in run for run in sys.argv[2:]):
        sys.exit(__doc__)
    runs = [(label, read(folder)) for label, folder in (a.split("=", 1) for a in sys.argv[2:])]
    steps = max(run[-1]["step"] for _, run in runs)
    losses = [m["loss"] for _, run in runs for m in run]
    low, high = min(losses) * 0.95, max(losses) * 1.02
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * step / steps
    y = lambda loss: TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for t in ticks(low, high):
        out.append(f'<path d="M{LEFT} {y(t):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
    for t in ticks(0, steps):
        out.append(f'<text x="{x(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
    out.append(f'<text x="{LEFT}" y="{TOP - 10}">loss, nats per token</text>')
    for i, (label, run) in enumerate(runs):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f'{x(m["step"]):.1f},{y(m["loss"]):.1f}' for m in run)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
        checks = [m for m in run if "validation_loss" in m]
        if checks:
            points = " ".join(f'{x(m["step"]):.1f},{y(m["validation_loss"]):.1f}' for m in checks)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                       f'stroke-width="1.4" stroke-dasharray="5 4"/>')
        out.append(f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 16 * i + 8}" text-anchor="end" '
                   f'fill="{colour}">{label}</text>')
    out.append("</svg>")
    pathlib.Path(sys.argv[1]).write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
