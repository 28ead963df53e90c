"""Long sequences on one rank: activations kept, recomputed, and recomputed with their inputs on a disk.

Trains a Llama of a few layers for three steps of one long sequence, at several widths. Prints the peak resident memory
above the same run's with one layer of width 64, and the median time of the last two steps. Writes a dated note to
benchmarks/results/.
"""

import argparse
import datetime
import statistics
import sys
import tempfile
from pathlib import Path

from trireme_runs import add_arguments, prepare_random_tokens, train, write_note

WAYS = {"kept": [], "recompute": ["--train.recompute=full"],
        "recompute, inputs on disk": ["--train.recompute=full", "--offload.activations=disk"]}


def run(args, folder, layers, width, options):
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as name:
        steps = train(args.trireme.resolve(), folder / "bench.toml", name, f"--data.path={folder / 'tokens'}",
                      f"--model.layers={layers}", f"--model.width={width}", f"--model.heads={max(1, width // 64)}",
                      f"--model.kv_heads={max(1, width // 64)}", f"--model.ffn_width={width * 2}",
                      f"--offload.folder={args.folder or folder}", *options)
    return (max(step["peak_rss_bytes"] for step in steps),
            statistics.median(step["step_seconds"] for step in steps[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--tokens", type=int, default=16384, help="of the sequence")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512], help="multiples of 64")
    parser.add_argument("--folder", type=Path, help="of the offloaded inputs; default: beside the run")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder)
        (folder / "bench.toml").write_text(
            f'[model]\nfamily = "llama"\nvocab_size = 512\nsequence_length = {args.tokens}\n[train]\nmicro_batch = 1\n'
            "global_batch = 1\nsteps = 3\n[optimizer]\nwarmup_steps = 0\n")
        before, _ = run(args, folder, 1, 64, [])
        for width in args.widths:
            for way, options in WAYS.items():
                peak, seconds = run(args, folder, args.layers, width, options)
                rows.append(f"| {width} | {way} | {(peak - before) / 2**20:.0f} | {seconds:.2f} |")
                print(f"bench: width {width}, {way} done", file=sys.stderr)
    table = "\n".join(["| width | activations | MiB | s per step |", "|---|---|---|---|", *rows])
    print(table)
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-activation-offload.md",
                   f"# Inputs of recomputed blocks on a disk, {day}\n\nA Llama of {args.layers} layers in fp32 on one rank, one "
                   f"sequence of {args.tokens:,} tokens per step. MiB resident at the peak, above a run with\none layer of "
                   f"width 64; median of two steps.\n\n{table}\n\nRepeat: `.venv/bin/python benchmarks/activation_offload.py`.\n")


if __name__ == "__main__":
    main()
