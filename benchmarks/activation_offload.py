"""Long sequences on one rank: activations kept, recomputed, recomputed with their inputs on a disk, and what
train.recompute = "auto" chooses.

Trains a Llama of a few layers for three steps of one long sequence, at several widths. The last run is in a control group
whose memory is halfway between what keeping and recomputing take. Prints the peak resident memory above the same run's
with one layer of width 64, and the median time of the last two steps. Writes a dated note to benchmarks/results/. Needs
the right to make control groups.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import tomllib
from pathlib import Path

from trireme_runs import ROOT, add_arguments, checked, prepare_random_tokens, write_note

WAYS = {"kept": [], "recompute": ["--train.recompute=full"],
        "recompute, inputs on disk": ["--train.recompute=full", "--offload.activations=disk"]}


def run(args, folder, layers, width, options, limit=None):
    """Peak bytes, seconds of a step, and the config of the run."""
    command = [args.trireme.resolve()]
    if limit is not None:
        command = [sys.executable, ROOT / "benchmarks" / "memory_limit.py", limit >> 20, *command]
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as name:
        checked([*command, "train", folder / "bench.toml", f"--output.folder={name}", "--checkpoint.interval=0",
                 f"--data.path={folder / 'tokens'}", f"--model.layers={layers}", f"--model.width={width}",
                 f"--model.heads={max(1, width // 64)}", f"--model.kv_heads={max(1, width // 64)}",
                 f"--model.ffn_width={width * 2}", f"--offload.folder={args.folder or folder}", *options])
        steps = [json.loads(line) for line in (Path(name) / "metrics.jsonl").read_text().splitlines()]
        config = tomllib.loads((Path(name) / "config.toml").read_text())
    return (max(step["peak_rss_bytes"] for step in steps),
            statistics.median(step["step_seconds"] for step in steps[1:]), config)


def chosen(config):
    train, offload = config["train"], config["offload"]
    stored = f", inputs of {offload['activation_blocks']} on disk" if offload["activations"] == "disk" else ""
    return f"{train['recompute']} of {train['recompute_blocks']} blocks{stored}"


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
        before, _, _ = run(args, folder, 1, 64, [])
        for width in args.widths:
            def add(way, peak, seconds):
                rows.append(f"| {width} | {way} | {(peak - before) / 2**20:.0f} | {seconds:.2f} |")
                print(f"bench: {rows[-1]}", file=sys.stderr)
            peaks = {}
            for way, options in WAYS.items():
                peaks[way], seconds, _ = run(args, folder, args.layers, width, options)
                add(way, peaks[way], seconds)
            limit = (peaks["kept"] + peaks["recompute"]) // 2
            peak, seconds, config = run(args, folder, args.layers, width,
                                        ["--train.recompute=auto", "--offload.activations=disk"], limit)
            add(f"auto in {(limit - before) >> 20} MiB: {chosen(config)}", peak, seconds)
    table = "\n".join(["| width | activations | MiB | s per step |", "|---|---|---|---|", *rows])
    print(table)
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-activation-offload.md",
                   f"# Inputs of recomputed blocks on a disk, {day}\n\nA Llama of {args.layers} layers in fp32 on one rank, one "
                   f"sequence of {args.tokens:,} tokens per step. MiB resident at the peak, above a run with\none layer of "
                   f"width 64; median of two steps. `auto` is in a control group of so many MiB above that run.\n\n{table}\n\nRepeat: `.venv/bin/python benchmarks/activation_offload.py`.\n")


if __name__ == "__main__":
    main()
