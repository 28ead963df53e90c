"""Compares the cost model with published measurements, and writes docs/planner-validation.md and its plot.

    benchmarks/plan/plan_published.py FOLDER      # FOLDER has the tables, such as megatron_2021.csv; minutes
"""

import argparse
import csv
import io
import math
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from svg_plot import COLOURS  # noqa: E402

MEMORY_SHARE = 0.95  # SearchOptions::memory_share
MEGATRON = ["Megatron 2020", "Megatron 2021", "Megatron 2021, table 2", "Korthikanti 2022", "MegaScale's Megatron-LM",
            "BLOOM", "vTrain, multi"]


def benchmark_output(benchmark, folder, mode):
    return subprocess.run([benchmark, folder, mode], check=True, capture_output=True, text=True).stdout


def read_rows(benchmark, folder):
    text = benchmark_output(benchmark, folder, "--rows")
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


def read_choices(benchmark, folder):
    """The lines of --choices: those of layouts that the planner takes, and those of measured sweeps."""
    common = ["table", "device", "model", "tokens", "devices", "batch", "layouts"]
    columns = {"choice": [*common, "published", "published_seconds", "published_share", "choice", "seconds", "share",
                          "search_seconds"],
               "pick": [*common, "picked", "seconds", "place", "best"]}
    text = benchmark_output(benchmark, folder, "--choices")
    found = {"choice": [], "pick": []}
    for kind, *cells in csv.reader(io.StringIO(text), delimiter="\t"):
        found[kind].append({name: float(cell) if name not in ("table", "device", "model", "published", "choice", "picked")
                            else cell for name, cell in zip(columns[kind], cells, strict=True)})
    return found["choice"], found["pick"]


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


def is_slower(choice):
    return choice["seconds"] == 0 or choice["seconds"] > choice["published_seconds"] * (1 + 1e-6)


def gain(choice):
    return 1 - choice["seconds"] / choice["published_seconds"]


def recomputes_less(choice):
    order = ["none", "selective", "full"]
    return choice["seconds"] > 0 and order.index(choice["choice"].split()[-1]) < order.index(choice["published"].split()[-1])


def is_near_the_best(pick):
    return pick["place"] <= math.ceil(0.1 * pick["layouts"])


def choices_section(choices, picks):
    """What the planner takes beside what was published and measured."""
    slower = [choice for choice in choices if is_slower(choice)]
    too_large = [choice for choice in slower if choice["published_share"] > MEMORY_SHARE]
    shown = [choice for choice in choices if choice["table"] != "vTrain, single"]
    small = [choice for choice in choices if choice["table"] == "vTrain, single"]
    misses = "\n".join(
        f"- {choice['table']}, {choice['model']} on {choice['devices']:.0f} {choice['device']}, {choice['tokens']:.0f} tokens: "
        f"{choice['published']}, which needs {100 * choice['published_share']:.0f} % of the memory by prediction; "
        f"the choice is {-100 * gain(choice):.1f} % slower." for choice in slower)
    lines = "\n".join(
        f"| {choice['table']} | {choice['device']} | {choice['model']} | {choice['tokens']:.0f} | {choice['devices']:.0f} | "
        f"{choice['batch']:.0f} | {choice['published']} | {choice['published_seconds']:.3f} | {choice['choice']} | "
        f"{choice['seconds']:.3f} | {100 * gain(choice):+.1f} % |" for choice in shown)
    sweeps = [pick for pick in picks if pick["table"] != "vTrain, single"]
    small_sweeps = [pick for pick in picks if pick["table"] == "vTrain, single"]
    behind = [100 * (pick["seconds"] / pick["best"] - 1) for pick in small_sweeps]
    few = [pick for pick in small_sweeps if pick["batch"] / pick["devices"] <= 1]
    sweep_lines = "\n".join(
        f"| {pick['table']} | {pick['model']} | {pick['devices']:.0f} | {pick['batch']:.0f} | {pick['layouts']:.0f} | "
        f"{pick['picked']} | {pick['seconds']:.2f} | {pick['place']:.0f} | {100 * (pick['seconds'] / pick['best'] - 1):.1f} % | "
        f"{'yes' if is_near_the_best(pick) else 'no'} |" for pick in sweeps)
    return f"""## What the planner takes

For each published model, device, batch and number of devices, the search of `trireme plan` ran on that cluster, with the
same constants, number sizes and attention kernel as the published rows. A choice must pass the runtime's own checks and
leave 5 % of the memory free by prediction. The simulator then predicted the choice and each published layout. No such
choice was ever run: these are predictions of both.

- The choice is at least as fast as every published layout for {len(choices) - len(slower)} of {len(choices)}.
- In {"each" if len(too_large) == len(slower) else len(too_large)} of the other {len(slower)}, the published layout breaks the memory rule by prediction, though it ran.
  For 30 B it does by far: with several microbatches this program's ZeRO-3 keeps the whole gradient of a rank
  ([data-parallel.md](data-parallel.md)), and PyTorch's FSDP keeps its part. The rest are within the 10 % that the
  prediction allows for fragmentation.
- The median gain is {100 * statistics.median(gain(choice) for choice in choices):.0f} %. {sum(map(recomputes_less, choices))}
  choices recompute less than the published layout.
- A choice that fills most of the memory may not fit in practice: peak memory of BLOOM is 5 to 25 GiB above the prediction.
- The slowest search took {max(choice["search_seconds"] for choice in choices):.0f} s.

Where the choice is slower:

{misses or "- nowhere."}

| table | device | model | tokens | devices | batch | fastest published layout | predicted, s | choice | predicted, s | gain |
|---|---|---|---|---|---|---|---|---|---|---|
{lines}

`vTrain, single` has {len(small)} more, which are left out here; the choice is at least as fast in
{sum(not is_slower(choice) for choice in small)}, with a median gain of
{100 * statistics.median(gain(choice) for choice in small):.0f} %.

## Which of the measured layouts it would take

A sweep here is at least five measured layouts of one model, batch and number of devices. Among those, the simulator takes
the one that it predicts to be fastest. Its place in the measured order should be within the first tenth, rounded up.

| sweep | model | GPUs | batch | layouts | taken | measured, s | place | slower than the best | first tenth |
|---|---|---|---|---|---|---|---|---|---|
{sweep_lines}

- On {min(int(pick["devices"]) for pick in sweeps)} GPUs and more, {sum(map(is_near_the_best, sweeps))} of
  {len(sweeps)} picks are in the first tenth.
- `vTrain, single`, {len(small_sweeps)} sweeps of small models on at most 8 GPUs: {sum(map(is_near_the_best, small_sweeps))}
  picks are in the first tenth. The mean pick is {statistics.mean(behind):.1f} % slower than the best measured, the median
  {statistics.median(behind):.1f} %, the worst {max(behind):.0f} %.
- With more than one sequence per GPU, {sum(map(is_near_the_best, [pick for pick in small_sweeps if pick not in few]))} of
  {len(small_sweeps) - len(few)} are; with one or less, {sum(map(is_near_the_best, few))} of {len(few)}. There a step takes at
  most {max(pick["seconds"] for pick in few):.2f} s.
- In most of the misses the best measured layout has a larger microbatch than the pick, whose kernels are then larger.
  At 18.4 billion parameters it is the reverse: the axes are those of the best, and its microbatch is 4 instead of 16.
- BLOOM has one such sweep: its other groups have at most four layouts. torchtitan's, Mosaic's and Megatron's have at most
  two.

"""


def draw(tables):
    """Predicted over measured seconds, on logarithmic axes."""
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


def page(rows, choices, picks):
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

{choices_section(choices, picks)}## Every row

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
    tables, text = page(read_rows(args.benchmark, args.folder), *read_choices(args.benchmark, args.folder))
    (ROOT / "docs/planner-validation.md").write_text(text)
    (ROOT / "docs/images/planner_validation.svg").write_text(
        draw({name: rows for name, rows in tables.items() if name != "vTrain, single"}))


if __name__ == "__main__":
    main()
