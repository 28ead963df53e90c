"""How close each layout comes to ranks that never communicate, and where the rest goes.

Trains the Llama of train_vs_pytorch under each layout. Before each run come as many independent `trireme`
processes with as many sequences per process; throughput relative to theirs is the limit's share. The lost
percents are those of the layout's step:

  smaller products  independent processes whose microbatches have the layout's size, against whole ones
  waiting           for other ranks, on the rank that waited longest (communication_fraction)
  rest              extra passes over memory, and products cut in another way

A pipeline's bubble is in its waiting. Its bound is that of `trireme train --profile` for the schedule with the
stages' measured times; `of the bound` is the layout's share, over what the bound and the smaller products leave.

    benchmarks/layout_limit.py --precision bf16 --width 512 --batch 8 1

For figures to keep, use a release build on a machine that does nothing else.
"""

import argparse
import datetime
import re
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "train_vs_pytorch"))

import rows as table  # noqa: E402
from runners import Job, make_start, run_trireme  # noqa: E402
from trireme_runs import ROOT, write_note  # noqa: E402


@dataclass
class Layout:
    name: str
    options: list[str]
    microbatch: int  # sequences per forward
    model: tuple[str, ...] = ()

    def is_pipeline(self):
        return self.name.startswith("pipeline")


def layouts(ranks, batch):
    """All that are compared, with `batch` sequences per rank."""
    for stage in (0, 1, 2, 3):
        yield Layout(f"data, ZeRO-{stage}", [f"--parallel.zero={stage}"], batch)
    whole = [f"--train.micro_batch={batch * ranks}"]
    for sequence in ("false", "true"):
        yield Layout("tensor, sequence" if sequence == "true" else "tensor",
                     [*whole, f"--parallel.tensor={ranks}", f"--parallel.sequence_parallel={sequence}"], batch)
    for form in ("ring", "all-to-all"):
        yield Layout(f"context, {form}", [*whole, f"--parallel.context={ranks}", f"--parallel.context_form={form}"], batch)
    for schedule in ("1f1b", "zero-bubble", "zero-bubble-v"):
        for size in table.microbatches(batch):
            yield Layout(f"pipeline, {schedule}, microbatches of {size}",
                         [f"--train.micro_batch={size}", f"--parallel.pipeline={ranks}",
                          f"--parallel.schedule={schedule}"], size)
    yield Layout("expert", [f"--parallel.expert={ranks}"], batch, table.SPARSE)


def run(args, start, ranks, batch, options, copies=1):
    """Tokens/s of all copies and the share of a step that the slowest rank waits."""
    return run_trireme(args, start, ranks, batch, args.threads, options, copies)


def bound_of(args, start, ranks, batch, layout):
    """The share of a step that the schedule with the stages' measured times computes."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        job = Job(args, start, ranks, batch, args.threads, [*layout.options, "--profile"], Path(folder) / "job")
        job.process.wait()
        job.is_running()
        job.result()
        found = re.search(r"of the schedule with these times ([\d.]+) %", job.log.read_text())
    return 1 - float(found[1]) / 100


def measure(args, start, ranks, batch, layout):
    """Medians over the rounds."""
    shares, smaller, waiting, rates = [], [], [], []
    microbatch = [f"--train.micro_batch={layout.microbatch}"]
    for _ in range(args.rounds):
        limit = run(args, start, 1, batch, (), ranks)["tokens_per_second"]
        own = run(args, start, ranks, batch, layout.options)
        rates.append(own["tokens_per_second"])
        shares.append(own["tokens_per_second"] / limit)
        waiting.append(own["communication_fraction"])
        if layout.microbatch != batch:
            smaller.append(run(args, start, 1, batch, microbatch, ranks)["tokens_per_second"] / limit)
    result = {"name": layout.name, "rate": statistics.median(rates), "share": statistics.median(shares),
              "products": statistics.median(smaller) if smaller else 1.0, "waiting": statistics.median(waiting)}
    if layout.is_pipeline():
        result["bound"] = bound_of(args, start, ranks, batch, layout)
    return result


def line(result):
    # Of the layout's own step: what it would take alone is its share.
    share, products = result["share"], result["products"]
    lost_to_products = share / products - share
    rest = 1 - share - lost_to_products - result["waiting"]
    bound = result.get("bound")
    of_bound = f"{100 * share / (bound * products):.0f}" if bound else ""
    cells = [result["name"], f"{result['rate']:,.0f}", f"{100 * share:.0f}", f"{100 * lost_to_products:.0f}",
             f"{100 * result['waiting']:.0f}", f"{100 * rest:.0f}", f"{100 * bound:.0f}" if bound else "", of_bound]
    return "| " + " | ".join(cells) + " |"


HEAD = ("| layout | tokens/s | % of independent | lost: smaller products | lost: waiting | lost: rest"
        " | schedule's bound % | % of the bound |\n|---|---|---|---|---|---|---|---|")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=str(ROOT / "build/release/bin/trireme"))
    parser.add_argument("--layouts", default="", help="regular expression of the names to run (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3, help="first steps left out of each median")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="per rank")
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 1], help="sequences per rank")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64, the width of a head")
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")
    args = parser.parse_args()
    args.microbatch = 0  # the layouts' options say it
    return args


def main():
    args = parse_arguments()
    text = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-data-") as folder:
        for batch in args.batch:
            text += [f"\n{batch} sequences per rank, {args.precision}, width {args.width}\n", HEAD]
            print("\n".join(text[-2:]), flush=True)
            starts = {}
            for layout in layouts(args.ranks, batch):
                if not re.search(args.layouts, layout.name):
                    continue
                if layout.model not in starts:
                    place = Path(folder) / f"{batch}-{len(starts)}"
                    starts[layout.model] = make_start(args, place, batch * args.ranks, layout.model)
                text.append(line(measure(args, starts[layout.model], args.ranks, batch, layout)))
                print(text[-1], flush=True)
    if not args.no_note:
        write_note(f"{datetime.date.today().isoformat()}-layout-limit-{args.precision}.md",
                   f"# Layouts beside independent ranks, {args.precision}\n" + "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
