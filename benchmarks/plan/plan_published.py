"""Compares the cost model with published measurements. Writes the tables of benchmarks/results/planner-validation, a plot,
and docs/reference/planner-validation.md from their summary.

    benchmarks/plan/plan_published.py FOLDER      # FOLDER has the tables, such as megatron_2021.csv; minutes
    benchmarks/plan/plan_published.py --page      # only the page, from summary.json
"""

import argparse
import csv
import io
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results/planner-validation"
PAGE = ROOT / "docs/reference/planner-validation.md"
sys.path.insert(0, str(ROOT / "tools"))
from svg_plot import COLOURS  # noqa: E402

MEMORY_SHARE = 0.95  # SearchOptions::memory_share
SMALL = "vTrain, single"  # 1,440 rows of small models: summarised, and in no table
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


def write_table(name, columns, rows):
    with open(RESULTS / name, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(columns)
        out.writerows(rows)


def write_tables(rows, choices, picks):
    """steps.csv, choices.csv and sweeps.csv; README.md beside them explains the columns."""
    columns = ["source", "device", "model", "devices", "layout", "fitted", "measured_seconds", "predicted_seconds", "ratio",
               "measured_gib", "predicted_gib", "out_of_memory", "fits"]
    steps = []
    for row in rows:
        if row["table"] == SMALL:
            continue
        model, _, layout = row["name"].partition(" ")
        devices = math.prod(int(word[1:]) for word in layout.split()[:3])  # t, p, d
        ran = row["seconds"] > 0
        steps.append([row["table"], row["device"], model, devices, layout, int(row["fitted"]),
                      f"{row['seconds']:.3f}" if ran else "", f"{row['predicted']:.3f}",
                      f"{row['predicted'] / row['seconds']:.3f}" if ran else "",
                      f"{row['gib']:.2f}" if row["gib"] > 0 else "", f"{row['predicted_gib']:.2f}",
                      int(row["oom"]), int(row["fits"])])
    write_table("steps.csv", columns, steps)
    columns = ["source", "device", "model", "tokens", "devices", "batch", "published", "published_seconds",
               "published_memory_share", "choice", "choice_seconds", "gain"]
    write_table("choices.csv", columns, [
        [c["table"], c["device"], c["model"], f"{c['tokens']:.0f}", f"{c['devices']:.0f}", f"{c['batch']:.0f}", c["published"],
         f"{c['published_seconds']:.3f}", f"{c['published_share']:.2f}", c["choice"], f"{c['seconds']:.3f}", f"{gain(c):.3f}"]
        for c in choices if c["table"] != SMALL])
    columns = ["source", "model", "devices", "batch", "layouts", "taken", "measured_seconds", "place", "slower_than_the_best"]
    write_table("sweeps.csv", columns, [
        [p["table"], p["model"], f"{p['devices']:.0f}", f"{p['batch']:.0f}", f"{p['layouts']:.0f}", p["picked"],
         f"{p['seconds']:.2f}", f"{p['place']:.0f}", f"{p['seconds'] / p['best'] - 1:.3f}"]
        for p in picks if p["table"] != SMALL])


def by_table(rows):
    tables = {}
    for row in rows:
        tables.setdefault(row["table"], []).append(row)
    return tables


def of_errors(rows):
    held_out = errors([row for row in rows if not row["fitted"]])
    return {"rows": len(errors(rows)), "mean_absolute": round(mean_absolute(errors(rows)), 3),
            "held_out": round(mean_absolute(held_out), 3), "median": round(statistics.median(errors(rows)), 3)}


def summarise(rows, choices, picks):
    """The numbers of the page. Shares and errors are fractions."""
    tables = by_table(rows)
    others = [row for row in rows if row["table"] != SMALL]
    memory = [row for row in rows if row["gib"] > 0 and not row["oom"]]
    shares = {name: [row["predicted_gib"] / row["gib"] - 1 for row in members]
              for name, members in by_table(memory).items()}
    oom = [row for row in rows if row["oom"]]
    slower = [choice for choice in choices if is_slower(choice)]
    small = [pick for pick in picks if pick["table"] == SMALL]
    large = [pick for pick in picks if pick["table"] != SMALL]
    behind = [pick["seconds"] / pick["best"] - 1 for pick in small]
    few = [pick for pick in small if pick["batch"] / pick["devices"] <= 1]
    return {
        "tables": {name: {"devices": sorted({row["device"] for row in members}), **of_errors(members)}
                   for name, members in tables.items()},
        "megatron": of_errors([row for row in rows if row["table"] in MEGATRON]),
        "all_but_small": of_errors(others),
        "rank_correlation": {name: round(rank_correlation(tables[name]), 2) for name in ("BLOOM", "vTrain, multi")},
        "memory": {name: {"rows": len(values), "mean_absolute": round(mean_absolute(values), 3),
                          "median": round(statistics.median(values), 3)} for name, values in shares.items()},
        "out_of_memory": {"rows": len(oom), "refused": sum(not row["fits"] for row in oom), "ran": len(memory),
                          "ran_but_refused": sum(not row["fits"] for row in memory)},
        "choices": {"number": len(choices), "slower": len(slower),
                    "slower_and_too_large": sum(c["published_share"] > MEMORY_SHARE for c in slower),
                    "median_gain": round(statistics.median(map(gain, choices)), 2),
                    "recompute_less": sum(map(recomputes_less, choices)),
                    "slowest_search_seconds": round(max(c["search_seconds"] for c in choices))},
        "sweeps": {"large": len(large), "large_near_the_best": sum(map(is_near_the_best, large)),
                   "least_devices": int(min(pick["devices"] for pick in large)),
                   "small": len(small), "small_near_the_best": sum(map(is_near_the_best, small)),
                   "mean_behind": round(statistics.mean(behind), 3), "median_behind": round(statistics.median(behind), 3),
                   "most_behind": round(max(behind), 2),
                   "few_sequences": len(few), "few_sequences_near_the_best": sum(map(is_near_the_best, few)),
                   "few_sequences_seconds": round(max(pick["seconds"] for pick in few), 2)},
    }


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


def page(summary):
    lines = [f"| {name} | {table['rows']} | {100 * table['mean_absolute']:.1f} | {100 * table['held_out']:.1f} | "
             f"{100 * table['median']:+.1f} |" for name, table in summary["tables"].items()]
    megatron, most, choices, sweeps = (summary[name] for name in ("megatron", "all_but_small", "choices", "sweeps"))
    memory, oom, correlation = summary["memory"], summary["out_of_memory"], summary["rank_correlation"]
    total = sum(table["rows"] for table in summary["tables"].values())
    many = sweeps["small"] - sweeps["few_sequences"]
    many_near = sweeps["small_near_the_best"] - sweeps["few_sequences_near_the_best"]
    return f"""# How good the planner's predictions are

`benchmarks/plan/plan_published.py` compares the planner with {total:,} published steps and writes this page.
[Every case](../../benchmarks/results/planner-validation/README.md) is in CSV files.

## Method

Each device has one set of constants ([device.cc](../../trireme/plan/device/device.cc)), fitted on every other row of its
tables; *held out* are the other rows. The error is predicted over measured seconds of a step, minus one.

![predicted over measured seconds](../images/planner_validation.svg)

*The dashed lines are 15 % from equality.*

| source | rows | mean absolute error, % | held out, % | median, % |
|---|---|---|---|---|
{chr(10).join(lines)}

- All but `{SMALL}` (small models on at most 8 GPUs): {100 * most["mean_absolute"]:.1f} %, held out {100 * most["held_out"]:.1f} %. Megatron's family:
  {100 * megatron["mean_absolute"]:.1f} %, held out {100 * megatron["held_out"]:.1f} %.
- Rank correlation: {correlation["BLOOM"]:.2f} in BLOOM's sweep, {correlation["vTrain, multi"]:.2f} in vTrain's on 64 to 512 GPUs.
- Peak memory: BLOOM's mean absolute error is {100 * memory["BLOOM"]["mean_absolute"]:.1f} % (median {100 * memory["BLOOM"]["median"]:+.1f} %, {memory["BLOOM"]["rows"]} rows), torchtitan's
  {100 * memory["torchtitan"]["mean_absolute"]:.1f} % ({100 * memory["torchtitan"]["median"]:+.1f} %, {memory["torchtitan"]["rows"]} rows). {oom["refused"]} of {oom["rows"]} rows that ran out of memory are predicted to be too large, and
  {oom["ran_but_refused"]} of {oom["ran"]} that ran.

## Where it is wrong, and why

- **DeepSpeed ZeRO-3** took two to four times the prediction with one sequence per GPU. The model hides gathers behind
  computation, and that version did not.
- **MegaScale** changed the model (parallel blocks, sliding windows) and its kernels. Its rows of Megatron-LM are within a
  few percent.
- **BLOOM**'s early PyTorch copies gradients and weights more often. Its peak memory is 5 to 25 GiB above the prediction
  when its embedding counts as a layer.

## What the planner takes

For each published model, batch and number of devices, `trireme plan` searched with the same constants, precisions and
attention kernel, and left 5 % of the memory free. Nobody has run its choices: both times are predictions.

- The choice is at least as fast as every published layout in {choices["number"] - choices["slower"]} of {choices["number"]} cases, with a median gain of {100 * choices["median_gain"]:.0f} %. {choices["recompute_less"]}
  choices recompute less.
- In {"all" if choices["slower_and_too_large"] == choices["slower"] else choices["slower_and_too_large"]} of the other {choices["slower"]}, the published layout ran although it breaks the memory rule by prediction. All
  logits of a microbatch are counted, as the published programs had them; this program has a
  chunk of them at a time.
- The slowest search took {choices["slowest_search_seconds"]} s.

## Which measured layout it would take

A sweep is at least five measured layouts of one model, batch and number of devices. The layout that is predicted to be
fastest should be in the first tenth of the measured order.

- On {sweeps["least_devices"]} GPUs and more, {sweeps["large_near_the_best"]} of {sweeps["large"]} picks are in that tenth.
- In `{SMALL}`, {sweeps["small_near_the_best"]} of {sweeps["small"]} picks are: {many_near} of {many} with more than one sequence per GPU, {sweeps["few_sequences_near_the_best"]} of {sweeps["few_sequences"]} with at most one,
  where a step takes at most {sweeps["few_sequences_seconds"]:.2f} s. Picks are slower than the best layout by {100 * sweeps["mean_behind"]:.1f} % on average, {100 * sweeps["median_behind"]:.1f} % in
  the median and {100 * sweeps["most_behind"]:.0f} % at worst.
- In most misses the best layout has a larger microbatch than the pick. At 18.4 B it is the reverse: 4 instead of 16.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--page", action="store_true", help="write only the page, from summary.json")
    parser.add_argument("--benchmark", type=Path, default=ROOT / "build/release/bin/plan_published_benchmark")
    args = parser.parse_args()
    if (args.folder is None) != args.page:
        parser.error("give either FOLDER or --page")
    if args.folder:
        rows = read_rows(args.benchmark, args.folder)
        choices, picks = read_choices(args.benchmark, args.folder)
        RESULTS.mkdir(exist_ok=True)
        write_tables(rows, choices, picks)
        (RESULTS / "summary.json").write_text(json.dumps(summarise(rows, choices, picks), indent=1) + "\n")
        (ROOT / "docs/images/planner_validation.svg").write_text(
            draw({name: members for name, members in by_table(rows).items() if name != SMALL}))
    PAGE.write_text(page(json.loads((RESULTS / "summary.json").read_text())))


if __name__ == "__main__":
    main()
