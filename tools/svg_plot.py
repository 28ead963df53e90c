"""Line plots as SVG, with the standard library alone. Used by plot_metrics.py and by benchmarks."""

from typing import NamedTuple

COLOURS = ["#1f5fa8", "#c2571a", "#3a8a3a", "#7a4ba0", "#8a6d1f"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 64, 16, 28, 44


class Curve(NamedTuple):
    points: list  # of (x, y)
    colour: str
    label: str = ""  # without one, the curve is not in the legend
    dashed: bool = False


def ticks(low, high, count=6):
    """Round numbers that cover [low, high]."""
    raw = (high - low) / count
    power = 1.0
    while power > raw:
        power /= 10
    while power * 10 <= raw:
        power *= 10
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw)
    return [i * step for i in range(int(low / step) - 1, int(high / step) + 2) if low <= i * step <= high]


def draw(curves, low, high, title, x_title="step", y_ticks=None, bound=None, legend="top"):
    """The curves between y = low and y = high. y_ticks are (y, label); bound draws a dashed line across; legend is "top"
    or "bottom", at the right."""
    first = min(x for curve in curves for x, _ in curve.points)
    first = 0 if first <= 1 else first
    last = max(x for curve in curves for x, _ in curve.points)
    x = lambda value: LEFT + (WIDTH - LEFT - RIGHT) * (value - first) / (last - first)
    y = lambda value: TOP + (HEIGHT - TOP - BOTTOM) * (high - max(low, min(high, value))) / (high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for value, label in y_ticks or [(t, f"{t:g}") for t in ticks(low, high)]:
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>')
    for value in ticks(first, last):
        out.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    if bound is not None:
        out.append(f'<path d="M{LEFT} {y(bound):.1f}H{WIDTH - RIGHT}" stroke="#b00" stroke-dasharray="5 4"/>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{x_title}</text>')
    out.append(f'<text x="{LEFT}" y="{TOP - 10}">{title}</text>')
    for curve in curves:
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in curve.points)
        dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
        out.append(f'<polyline points="{points}" fill="none" stroke="{curve.colour}" stroke-width="1.4"{dashes}/>')
    named = [curve for curve in curves if curve.label]
    top = TOP + 8 if legend == "top" else HEIGHT - BOTTOM - 16 * len(named)
    for i, curve in enumerate(named):
        out.append(f'<text x="{WIDTH - RIGHT - 8}" y="{top + 16 * i}" text-anchor="end" '
                   f'fill="{curve.colour}">{curve.label}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
