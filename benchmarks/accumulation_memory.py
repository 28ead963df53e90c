"""What several microbatches per step cost in memory: peak of the largest rank, above the process before its model.

Trains one Llama for a few steps at each ZeRO stage with 1, 2, 4 and 8 microbatches per step, which have one size. Before
the model is what a model of 1 layer and width 64 needs in the same layout. With --order the gradients are added in that
order at each stage. Prints a table and writes a dated note to benchmarks/results/.
"""

import argparse
import datetime
import sys
import tempfile
from pathlib import Path

from trireme_runs import SMALL_LLAMA, add_arguments, prepare_random_tokens, shape, train, write_note


def peak(args, folder, ranks, zero, microbatches, model):
    """Resident bytes of the largest rank."""
    order = [f"--parallel.gradient_order={args.order}"] if args.order else []
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as run:
        steps = train(args.trireme.resolve(), folder / "bench.toml", run, f"--ranks={ranks}", "--threads=1",
                      f"--data.path={folder / 'tokens'}", f"--parallel.zero={zero}",
                      f"--train.global_batch={ranks * microbatches}", f"--model.sequence_length={args.tokens}", *order,
                      *model)
    return max(step["peak_rss_bytes"] for step in steps)


def rows(args, folder):
    for ranks in args.ranks:
        for zero in args.zero:
            before = peak(args, folder, ranks, zero, 1, shape(1, 64))
            peaks = [peak(args, folder, ranks, zero, count, shape(args.layers, args.width)) - before
                     for count in args.microbatches]
            cells = [f"{value / 2**20:.0f}" for value in peaks]
            yield f"| {ranks} | {zero} | " + " | ".join(cells) + f" | {peaks[-1] / peaks[0]:.2f} |"
            print(f"bench: {ranks} ranks, zero {zero} done", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--zero", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--microbatches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--order", choices=["microbatch-first", "rank-first"], help="default: that of the stage")
    parser.add_argument("--tokens", type=int, default=64, help="of a sequence")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512, help="a multiple of 64")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder)
        (folder / "bench.toml").write_text(SMALL_LLAMA)
        counts = " | ".join(f"{count}" for count in args.microbatches)
        last = f"{args.microbatches[-1]} over {args.microbatches[0]}"
        head = [f"| ranks | zero | MiB with microbatches: {counts} | {last} |",
                "|" + "---|" * (3 + len(args.microbatches))]
        table = "\n".join([*head, *rows(args, folder)])
    print(table)
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-accumulation-memory.md",
                   f"# Memory of a step's microbatches, {day}\n\nA Llama of {args.layers} layers, width {args.width}, vocabulary "
                   f"8192, T {args.tokens}, fp32, AdamW; one sequence\nper microbatch, {args.order or 'the order of each stage'}. MiB "
                   f"resident of the largest rank at its peak in three steps, above the\nprocess before its model.\n\n{table}\n\n"
                   "Repeat: `.venv/bin/python benchmarks/accumulation_memory.py`.\n")


if __name__ == "__main__":
    main()
