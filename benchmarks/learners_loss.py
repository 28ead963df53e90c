"""Validation loss of learners beside data parallelism, at equal steps: what each way to exchange less costs.

Trains the demo's model on the demo's text, which `make demo` prepares, with each method and seed, on as many ranks with one
thread as there are learners. Prints a table of means over the seeds; losers too.

--batch says what is equal beside the steps, and both are asked for in the literature:
  step     the samples of a step over all learners, 16, and so all samples: each learner has a batch of 16 / learners. The
           question is what exchanging less costs.
  learner  each learner's batch, 16, as DiLoCo was first compared: data parallelism with 16 samples a step shows what more
           machines give, and with 16 x learners, which are the same samples, what exchanging less costs.
A learner's gradient has the noise of its own batch, so its best learning rate is another than that of data parallelism.
With --rates each method trains --tune-steps with each of them, and the one of least loss is used, of data parallelism too.

A run whose loss is no longer finite has ended, and is shown as such.

Finished runs are in a results file, an unfinished one in its folder: started again with the same options, it goes on. All
methods are trained with one seed before any with the next one. --table trains nothing and prints what is there. With
--option other keys are given to all, such as those of a smaller model, and with --only some methods are trained.

    benchmarks/learners_loss.py --steps 2000 --seeds 3 --rates 1e-3,2e-3,4e-3 [--batch learner]
        [--option model.layers=2 --option model.width=128]
"""

import argparse
import datetime
import json
import math
import shutil
import statistics
import sys
import time
import zlib
from pathlib import Path

from trireme_runs import ROOT, add_arguments, checked, write_note


DATA_PARALLELISM = "data parallelism"
ONE_BATCH = 16  # samples
NOT_FINITE = "first gradient that is not finite"  # the message of a run that ends for it


def methods_of(args, known, steps):
    """The options of each method that the program has, for a run of so many steps."""
    found = {name: options for name, (options, word) in cases(args.every, steps).items() if word in known}
    if args.batch == "learner":  # the demo's config has 16
        found = {name: [*options, f"--train.global_batch={ONE_BATCH * args.learners}"] for name, options in found.items()}
        found[f"{DATA_PARALLELISM}, {ONE_BATCH} samples a step"] = []
    return {name: options for name, options in found.items()
            if name == DATA_PARALLELISM or not args.only or any(word in name for word in args.only)}


def cases(every, steps):
    """The options of each method, and the word of `trireme train --help` without which a program does not have it."""
    fragments = next(number for number in (5, 4, 2, 1) if every % number == 0 and every // number > 1 or number == 1)
    stride = every // fragments
    streaming = [f"--outer.every={every}", f"--outer.fragments={fragments}"]
    if stride > 1:
        streaming += [f"--outer.delay={min(5, stride - 1)}", "--outer.mix=0.5"]

    def graph(method, name, every=every):
        return [f"--outer.method={method}", f"--outer.graph={name}", f"--outer.every={every}"]

    return {
        DATA_PARALLELISM: ([], ""),
        f"DiLoCo, H = {every}": ([f"--outer.every={every}"], "outer"),
        f"streaming, int4, H = {every}": ([*streaming, "--outer.wire=int4"], "outer"),
        f"local SGD, H = {every}": (["--outer.method=average", f"--outer.every={every}"], "outer"),
        "1-bit Adam": (["--optimizer.name=onebit-adam", f"--optimizer.freeze_step={max(1, steps // 5)}"], "onebit-adam"),
        f"DiLoCo from step {steps // 4} on, H = {every}": ([f"--outer.every={every}", f"--outer.begin={steps // 4}"], "outer"),
        f"DiLoCo from step {steps // 4} on, momentum 0.5, H = {every}":
            ([f"--outer.every={every}", f"--outer.begin={steps // 4}", "--outer.momentum=0.5", "--outer.learning_rate=0.9"], "outer"),
        f"local SGD from step {steps // 2} on, H = {every}":
            (["--outer.method=average", f"--outer.every={every}", f"--outer.begin={steps // 2}"], "outer"),
        f"gossip, base-2, H = {every}": (graph("gossip", "base-2"), "outer"),
        f"gossip on a ring, H = {every}": (graph("gossip", "ring"), "outer"),
        f"push-sum, exponential, H = {every}": (graph("push-sum", "exponential"), "outer"),
        f"streaming, H = {every}": (streaming, "outer"),
        f"gradient tracking on a ring, H = {every}": (graph("gradient-tracking", "ring"), "gradient-tracking"),
        "gossip on a ring, H = 1": (graph("gossip", "ring", 1), "outer"),
    }


class Results:
    """A line of JSON for each finished run, with what identifies it."""

    def __init__(self, path):
        self.path = path
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        # An interruption may have left a part of a line.
        self.runs = [json.loads(line) for line in lines if line.endswith("\n")]
        if lines and not lines[-1].endswith("\n"):
            path.write_text("".join(lines[:-1]))

    def find(self, key):
        return next((run for run in self.runs if all(run.get(name) == value for name, value in key.items())), None)

    def add(self, run):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")
        self.runs.append(run)


def train(args, options, seed, steps, folder):
    """The last validation loss, infinite if the run ended before, and the bytes that a learner has sent for exchanges."""
    apart = [f"--parallel.learners={args.learners}"] if any(option.startswith("--outer.") for option in options) else []
    printed = checked([args.trireme.resolve(), "train", "examples/demo.toml", "--ranks", args.learners, "--threads", 1,
             f"--output.folder={folder}", f"--data.path={args.data}", f"--train.steps={steps}",
             f"--train.micro_batch={ONE_BATCH // args.learners}", f"--train.seed={seed}", f"--data.seed={seed}",
             f"--train.evaluate_interval={steps}", f"--train.evaluate_sequences={args.sequences}",
             f"--checkpoint.interval={max(1, steps // 8)}", "--checkpoint.keep=1",
             *(f"--{option}" for option in args.option), *apart, *options], expected=NOT_FINITE)
    if NOT_FINITE in printed:
        return {"validation_loss": math.inf, "bytes": 0}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {"validation_loss": lines[-1]["validation_loss"], "bytes": sum(line.get("outer_bytes", 0) for line in lines)}


def key_of(args, name, options, seed, steps):
    return {"case": name, "options": options, "seed": seed, "steps": steps, "learners": args.learners,
            "data": str(args.data), "sequences": args.sequences, "given": args.option}


def number_of(key):
    """Of the folder of an unfinished run."""
    return f"{zlib.crc32(json.dumps(key, sort_keys=True).encode()):08x}"


def run_all(args, todo, results):
    """Trains those of (name, options, seed, steps) that are not there yet."""
    begin, trained = time.time(), 0
    for number, (name, options, seed, steps) in enumerate(todo, 1):
        key = key_of(args, name, options, seed, steps)
        if results.find(key):
            continue
        folder = args.folder / number_of(key)
        start = time.time()
        run = key | train(args, options, seed, steps, folder)
        results.add(run)
        shutil.rmtree(folder)
        trained += 1
        left = (time.time() - begin) / trained * (len(todo) - number)
        print(f"[{number}/{len(todo)}] {steps} steps, seed {seed}, {name}: {run['validation_loss']:.4f} in "
              f"{time.time() - start:.0f} s; about {datetime.timedelta(seconds=round(left))} left", file=sys.stderr, flush=True)


def with_rate(options, rate):
    return [*options, f"--optimizer.learning_rate={rate}"]


def try_rates(args, known, results):
    """The validation losses of short runs, by method and learning rate."""
    short = methods_of(args, known, args.tune_steps)
    if not args.table:
        run_all(args, [(name, with_rate(options, rate), 1, args.tune_steps) for name, options in short.items()
                       for rate in args.rates], results)
    return {name: {rate: run["validation_loss"] for rate in args.rates
                   if (run := results.find(key_of(args, name, with_rate(options, rate), 1, args.tune_steps)))}
            for name, options in short.items()}


def rows_of(args, methods, results):
    """Of the methods of which there are runs, with as many seeds as there are."""
    found = {name: {seed: run for seed in range(1, args.seeds + 1)
                    if (run := results.find(key_of(args, name, options, seed, args.steps)))}
             for name, options in methods.items()}
    base = found.get(DATA_PARALLELISM, {})
    rows = {}
    for name, runs in found.items():
        losses = [run["validation_loss"] for run in runs.values()]
        differences = [run["validation_loss"] - base[seed]["validation_loss"] for seed, run in runs.items() if seed in base]
        if differences:
            rows[name] = {"seeds": len(losses), "validation_loss": statistics.mean(losses), "spread": max(losses) - min(losses),
                          "difference": statistics.mean(differences), "differences": differences,
                          "bytes_per_step": statistics.mean(run["bytes"] / run["steps"] for run in runs.values())}
    return rows


def rates_table(args, losses):
    text = (f"Validation loss after {args.tune_steps} steps with seed 1, by learning rate; that of the least loss is used "
            f"below.\n\n| | {' | '.join(args.rates)} |\n|---|{'---|' * len(args.rates)}\n")
    for name, of_rates in losses.items():
        text += f"| {name} | {' | '.join(f'{of_rates[rate]:.4f}' if rate in of_rates else '' for rate in args.rates)} |\n"
    return text + "\n"


def table(args, rows, losses):
    given = f" ({', '.join(args.option)})" if args.option else ""
    of_step = ("16 samples a step over all learners" if args.batch == "step" else
               f"16 samples a step for each learner, and 16 x {args.learners} or 16 for data parallelism")
    text = (f"# Loss of learners at equal steps, {datetime.date.today()}\n\nThe demo's model{given} and text ({args.data.name}), "
            f"{args.steps} steps, {of_step}; {args.learners} learners of one rank or as many data-parallel ranks. Validation "
            f"loss after the last step, on at most {args.sequences} sequences. The spread is between the lowest and the highest "
            "seed, the difference the mean of those of each seed, with the lowest and the highest.\n\n"
            + (rates_table(args, losses) if losses else "")
            + "| | seeds | validation loss | spread | difference to data parallelism | bytes per step and learner |\n"
            "|---|---|---|---|---|---|\n")
    for name, row in rows.items():
        if not math.isfinite(row["validation_loss"]):
            text += f"| {name} | {row['seeds']} | not finite, the run ended | | | |\n"
            continue
        sent = f"{row['bytes_per_step']:,.0f}" if row["bytes_per_step"] else ""
        apart = "" if name == DATA_PARALLELISM else (
            f"{row['difference']:+.4f} ({min(row['differences']):+.4f} to {max(row['differences']):+.4f})")
        text += f"| {name} | {row['seeds']} | {row['validation_loss']:.4f} | {row['spread']:.4f} | {apart} | {sent} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learners", type=int, default=4, help="a divisor of 16")
    parser.add_argument("--batch", choices=["step", "learner"], default="step", help="whose samples are equal, see above")
    parser.add_argument("--rates", type=lambda text: text.split(","), default=[], help="learning rates that are tried")
    parser.add_argument("--tune-steps", type=int, default=400)
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="methods that have it in their name")
    parser.add_argument("--every", type=int, default=50, help="steps of a round")
    parser.add_argument("--sequences", type=int, default=512, help="validation sequences")
    parser.add_argument("--data", default=ROOT / "data/python", type=Path, help="prefix of prepared tokens")
    parser.add_argument("--folder", default=ROOT / "runs/learners_loss", type=Path, help="of runs, and of the results file")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="a key of all runs")
    parser.add_argument("--table", action="store_true", help="train nothing, print the table of the runs that are there")
    args = parser.parse_args()
    if not args.data.with_suffix(".bin").exists():
        sys.exit(f"{args.data}.bin is missing; `make demo` prepares the demo's text, or give another with --data")
    args.folder.mkdir(parents=True, exist_ok=True)
    results = Results(args.folder / "results.jsonl")
    known = checked([args.trireme.resolve(), "train", "--help"])
    methods, losses = methods_of(args, known, args.steps), {}
    if args.rates:
        losses = {name: tried for name, tried in try_rates(args, known, results).items() if tried}
        methods = {name: with_rate(methods[name], min(tried, key=tried.get)) for name, tried in losses.items()}
    if not args.table:
        run_all(args, [(name, options, seed, args.steps) for seed in range(1, args.seeds + 1)
                       for name, options in methods.items()], results)
    rows = rows_of(args, methods, results)
    if args.json:
        print(json.dumps({"rows": rows, "rates": losses}, indent=2))
        return
    text = table(args, rows, losses)
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-learners-loss.md", text)


if __name__ == "__main__":
    main()
