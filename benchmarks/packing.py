"""Documents in sequences: how much of them is filled, and learnt tokens per second, alternating in one run.

Draws documents of log-normal lengths and trains one Llama on one rank and one thread with them: a stream cut at every
sequence_length, whole documents placed by best-fit decreasing, and the same with attention within documents only. Beside
them the share that is filled if each document has a sequence of its own, which is counted and not run. Prints a table of
medians and writes a dated note to benchmarks/results/.
"""

import argparse
import datetime
import json
import random
import statistics
import tempfile
from pathlib import Path

from trireme_runs import add_arguments, checked, shape, train, write_note

CONFIG = """
[model]
family = "llama"
[optimizer]
warmup_steps = 0
[train]
seed = 1
"""
WAYS = {"stream": [], "whole": ["--data.packing=whole"],
        "whole, separate documents": ["--data.packing=whole", "--data.separate_documents=true"]}


def draw_documents(args, folder):
    """One file each, of random letters. Returns the lengths in tokens; the last token predicts nothing."""
    generator = random.Random(1)
    lengths = []
    (folder / "text").mkdir()
    for i in range(args.documents):
        size = max(2, round(generator.lognormvariate(args.log_mean, args.log_deviation)))
        text = "".join(generator.choices("etaoin shrdlu", k=size))
        (folder / "text" / f"{i:05}.txt").write_text(text)
        lengths.append(size + 1)  # the end of the document
    checked([args.trireme.resolve(), "data", "prepare", "--input", folder / "text", "--tokenizer", "bytes",
             "--validation-fraction", "0", "--output", folder / "tokens"])
    return lengths


def filled(args, folder, options):
    """The share of the sequences that the start of a run says, in percent; a stream fills them all."""
    if not options:
        return 100.0
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as run:
        output = checked([args.trireme.resolve(), "train", folder / "config.toml", "--ranks=1", f"--output.folder={run}",
                          "--train.steps=1", "--checkpoint.interval=0", f"--data.path={folder / 'tokens'}",
                          *sizes(args), *options])
    return float(output.split(" fill ")[1].split(" %")[0])


def sizes(args):
    return [*shape(args.layers, args.width), f"--model.sequence_length={args.tokens}", "--model.vocab_size=257"]


def seconds(args, folder, options):
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as run:
        steps = train(args.trireme.resolve(), folder / "config.toml", run, "--ranks=1", "--threads=1",
                      f"--data.path={folder / 'tokens'}", f"--train.steps={args.steps}",
                      f"--train.global_batch={args.sequences}", f"--train.micro_batch={args.sequences}", *sizes(args),
                      *options)
    return statistics.median(step["step_seconds"] for step in steps[args.warmup:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--log-mean", type=float, default=4.6, help="of the logarithm of a document's length")
    parser.add_argument("--log-deviation", type=float, default=0.9)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--tokens", type=int, default=1024, help="of a sequence")
    parser.add_argument("--sequences", type=int, default=4, help="per step")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3, help="first steps left out of each median")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        (folder / "config.toml").write_text(CONFIG)
        lengths = draw_documents(args, folder)
        shares = {way: filled(args, folder, options) for way, options in WAYS.items()}
        times = {way: [] for way in WAYS}
        for _ in range(args.rounds):
            for way, options in WAYS.items():
                times[way].append(seconds(args, folder, options))
    padded = 100 * sum(min(length - 1, args.tokens) for length in lengths) / (args.tokens * len(lengths))
    speed = {way: args.sequences * args.tokens * shares[way] / 100 / statistics.median(values)
             for way, values in times.items()}
    if args.json:
        print(json.dumps({"padded": {"filled_percent": padded},
                          **{way: {"filled_percent": shares[way], "tokens_per_second": speed[way]} for way in WAYS}}))
        return
    table = "\n".join(["| | filled, % | learnt tokens/s |", "|---|---|---|",
                       f"| a sequence for each document | {padded:.1f} | not run |",
                       *(f"| {way} | {shares[way]:.1f} | {speed[way]:,.0f} |" for way in WAYS)])
    print(table)
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-packing.md",
                   f"# Documents in sequences, {day}\n\n{args.documents} documents of log-normal lengths, {min(lengths)} to "
                   f"{max(lengths)} tokens, {statistics.mean(lengths):.0f} on average, in sequences\nof {args.tokens}. A Llama "
                   f"of {args.layers} layers, width {args.width}, {args.sequences} sequences a step, fp32; one rank of one "
                   f"thread; medians of {args.rounds}\nalternating rounds.\n\n{table}\n\nRepeat: `.venv/bin/python "
                   f"benchmarks/packing.py`.\n")


if __name__ == "__main__":
    main()
