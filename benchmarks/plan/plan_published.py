"""Compares the cost model with published measurements, and writes docs/planner-validation.md and its plot.

    benchmarks/plan/plan_published.py FOLDER      # FOLDER has the tables, such as megatron_2021.csv; seconds
"""

import argparse
import csv
import io
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from svg_plot import COLOURS  # noqa: E402

MEGATRON = ["Megatron 2020", "Megatron 2021", "Megatron 2021, table 2", "Korthikanti 2022", "MegaScale's Megatron-LM",
            "BLOOM", "vTrain, multi"]


def read_rows(benchmark, folder):
    text = subprocess.run([benchmark, folder, "--rows"], check=True, capture_output=True, text=True).stdout
    rows = []
    for line in csv.reader(io.StringIO(text)):
        if line[0] == "table":
            continue
        # Names of tables and rows may have commas; the other columns have none.
        device = next(i for i, cell in enumerate(line) if cell.split("-")[0] in ("a100", "h100", "v100"))
        table = ",".join(line[:device])
        name = ",".join(line[device + 1:-7])
        fitted, seconds, predicted, gib, predicted_gib, oom, fits = map(float, line[-7:])
        rows.append({"table": table, "device": line[device], "name": name, "fitted": fitted == 1, "seconds": seconds,
                     "predicted": predicted, "gib": gib, "predicted_gib": predicted_gib, "oom": oom == 1,
                     "fits": fits == 1})
    return rows


def errors(rows):
    return [row["predicted"] / row["seconds"] - 1 for row in rows if row["seconds"] > 0]


def mean_absolute(values):
    return statistics.mean(map(abs, values)) if values else float("nan")


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0] * len(values)
    for rank, i in enumerate(order):
        result[i] = rank
    return result


def rank_correlation(rows):
    rows = [row for row in rows if row["seconds"] > 0]
    return statistics.correlation(ranks([row["seconds"] for row in rows]), ranks([row["predicted"] for row in rows]))


def draw(tables):
    """Predicted over measured seconds, on logarithmic axes."""
    import math
    size, edge, low, high = 520, 56, math.log10(0.05), math.log10(400)
    place = lambda value: edge + (size - edge - 12) * (math.log10(value) - low) / (high - low)
    x, y = place, lambda value: size - place(value)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 190} {size}" width="{size + 190}" height="{size}" '
           'font-family="sans-serif" font-size="12" fill="#333">',
           f'<rect width="{size + 190}" height="{size}" fill="white"/>']
    for tick in (0.1, 1, 10, 100):
        out.append(f'<path d="M{x(tick):.1f} {size - edge}V12M{edge} {y(tick):.1f}H{size - 12}" stroke="#e4e4e4"/>'
                   f'<text x="{x(tick):.1f}" y="{size - edge + 18}" text-anchor="middle">{tick:g} s</text>'
                   f'<text x="{edge - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g} s</text>')
    for factor, style in ((1, "#888"), (1.15, '#bbb" stroke-dasharray="4 3'), (1 / 1.15, '#bbb" stroke-dasharray="4 3')):
        out.append(f'<path d="M{x(0.06):.1f} {y(0.06 * factor):.1f}L{x(330):.1f} {y(330 * factor):.1f}" stroke="{style}"/>')
    palette = [*COLOURS, "#c02f6b", "#2f9c9c", "#5b5b5b", "#b08f00", "#6f8fd0", "#805030", "#90b040"]
    for i, (name, rows) in enumerate(tables.items()):
        colour = palette[i % len(palette)]
        for row in rows:
            if row["seconds"] > 0:
                out.append(f'<circle cx="{x(row["seconds"]):.1f}" cy="{y(row["predicted"]):.1f}" r="2.6" fill="{colour}" '
                           'fill-opacity="0.65"/>')
        out.append(f'<circle cx="{size + 8}" cy="{24 + 18 * i}" r="4" fill="{colour}"/>'
                   f'<text x="{size + 18}" y="{28 + 18 * i}">{name}</text>')
    out.append(f'<text x="{(size + edge) / 2}" y="{size - 14}" text-anchor="middle">measured step</text>'
               f'<text transform="translate(14 {(size - edge) / 2}) rotate(-90)" text-anchor="middle">predicted step</text></svg>')
    return "\n".join(out) + "\n"


def page(rows):
    tables = {}
    for row in rows:
        tables.setdefault(row["table"], []).append(row)
    lines = []
    for name, members in tables.items():
        devices = ", ".join(sorted({row["device"] for row in members}))
        held_out = [row for row in members if not row["fitted"]]
        all_of = errors(members)
        lines.append(f"| {name} | {devices} | {len(all_of)} | {100 * mean_absolute(all_of):.1f} % | "
                     f"{100 * mean_absolute(errors(held_out)):.1f} % | {100 * statistics.median(all_of):+.1f} % |")
    small = [row for row in rows if row["table"] != "vTrain, single"]
    megatron = [row for row in small if row["table"] in MEGATRON]
    oom = [row for row in rows if row["oom"]]
    memory = [row for row in rows if row["gib"] > 0 and not row["oom"]]
    refused = [row for row in memory if not row["fits"]]
    by_memory = {}
    for row in memory:
        by_memory.setdefault(row["table"], []).append(row["predicted_gib"] / row["gib"] - 1)
    memory_lines = [f"| {name} | {len(values)} | {100 * mean_absolute(values):.1f} % | {100 * statistics.median(values):+.1f} % |"
                    for name, values in by_memory.items()]
    each = [f"| {row['table']} | {row['device']} | {row['name']} | "
            f"{'out of memory' if row['oom'] else format(row['seconds'], '.3f')} | {row['predicted']:.3f} | "
            f"{'fits' if row['fits'] else 'too large'} | "
            + (f"{100 * (row['predicted'] / row['seconds'] - 1):+.1f} %" if row["seconds"] > 0 else "") + " |"
            for row in small]
    return tables, f"""# The planner beside published measurements

Written by `benchmarks/plan/plan_published.py`. Each device has one set of constants
([device.cc](../trireme/plan/device/device.cc)), fitted on every other row of its tables; *held out* are the other rows.
The error is predicted over measured seconds of a step, minus one.

![predicted over measured seconds](images/planner_validation.svg)

The dashed lines are 15 % from equality.

| table | device | rows | mean absolute error | held out | median |
|---|---|---|---|---|---|
{chr(10).join(lines)}

- Tables of Megatron's family together: {100 * mean_absolute(errors(megatron)):.1f} %, held out
  {100 * mean_absolute(errors([row for row in megatron if not row["fitted"]])):.1f} %.
- All but `vTrain, single` (small models on at most 8 GPUs): {100 * mean_absolute(errors(small)):.1f} %, held out
  {100 * mean_absolute(errors([row for row in small if not row["fitted"]])):.1f} %.
- Rank correlation: BLOOM's sweep {rank_correlation(tables["BLOOM"]):.2f}, vTrain's sweep on 64 to 512 GPUs
  {rank_correlation(tables["vTrain, multi"]):.2f}.
- Out of memory: {sum(not row["fits"] for row in oom)} of {len(oom)} such rows are predicted to be too large, and
  {len(refused)} of {len(memory)} rows that ran.

Where it is wrong, and why:

- **DeepSpeed ZeRO-3 2021** took two to four times what the model predicts with one sequence a GPU: the model expects
  gathers behind computation, which that version did not reach.
- **MegaScale**'s own rows change the model (parallel blocks, sliding windows) and its kernels. Its rows of Megatron-LM are
  within a few percent.
- **BLOOM** and early PyTorch copies gradients and weights more often than this program; its peak memory is 5 to 25 GiB
  above the prediction when its embedding counts as a layer.

Peak memory:

| table | rows | mean absolute error | median |
|---|---|---|---|
{chr(10).join(memory_lines)}

## Every row

t, p, d: ranks of tensor, pipeline and data; v: stages a rank; b: microbatch / global batch; T: tokens of a sequence; N: heads.
`vTrain, single` has {len(tables["vTrain, single"])} rows, which are left out here.

| table | device | row | measured, s | predicted, s | memory | error |
|---|---|---|---|---|---|---|
{chr(10).join(each)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--benchmark", type=Path, default=ROOT / "build/release/bin/plan_published_benchmark")
    args = parser.parse_args()
    tables, text = page(read_rows(args.benchmark, args.folder))
    (ROOT / "docs/planner-validation.md").write_text(text)
    (ROOT / "docs/images/planner_validation.svg").write_text(
        draw({name: rows for name, rows in tables.items() if name != "vTrain, single"}))


if __name__ == "__main__":
    main()
