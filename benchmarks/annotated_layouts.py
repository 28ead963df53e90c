#!/usr/bin/env python3
"""Planned against measured seconds of a step: four modules under five sets of given splits, on two ranks.

    benchmarks/annotated_layouts.py build/release/bin [--steps 12] [--cluster CLUSTER.toml]

Each layout is planned by `shard --auto --write` for a CLUSTER file, by default one that `trireme bench device` measures first,
and then trained as it was planned. A line has the seconds of both and the error; the last one the mean of the errors.
"""
import argparse
import json
import statistics
import tempfile
from pathlib import Path

from trireme_runs import checked, train

# Samples of a forward, and the width.
MODULES = {"mlp": (512, 1024), "transformer": (8, 512), "unet": (8, 64), "dlrm": (1024, 128)}
GIVEN = ("", "columns", "rows", "blocks", "samples")


def measured(program, config, folder, steps):
    """Seconds of a step, the median without the first ones."""
    lines = train(program, config, folder, "--ranks", 2, f"--train.steps={steps}")
    return statistics.median(line["step_seconds"] for line in lines[3:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the programs")
    parser.add_argument("--steps", type=int, default=12, help="steps of each layout")
    parser.add_argument("--cluster", type=Path, help="CLUSTER file of two ranks of this machine")
    arguments = parser.parse_args()
    programs = arguments.folder.resolve()
    program = programs / "annotated_layouts_benchmark"
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = arguments.cluster.resolve() if arguments.cluster else folder / "cluster.toml"
        if not arguments.cluster:
            checked([programs / "trireme", "bench", "device", "--ranks", 2, "--output", cluster])
        print("module       given      planned ms  measured ms  error")
        for kind, (samples, width) in MODULES.items():
            for given in GIVEN:
                config, planned = folder / "run.toml", folder / "planned.toml"
                config.write_text(f"[train]\nglobal_batch = {samples}\nmicro_batch = {samples}\n"
                                  f"[model]\nkind = \"{kind}\"\ngiven = \"{given}\"\nwidth = {width}\n")
                plan = json.loads(checked([program, "shard", config, cluster, "--auto", "--ranks", 2, "--json", "--write", planned]))
                seconds = measured(program, planned, folder / f"{kind}-{given}", arguments.steps)
                errors.append(abs(plan["predicted_seconds"] / seconds - 1))
                print(f"{kind:12} {given or '-':10} {1e3 * plan['predicted_seconds']:10.2f} {1e3 * seconds:12.2f} "
                      f"{100 * (plan['predicted_seconds'] / seconds - 1):+5.1f} %", flush=True)
    print(f"mean absolute error {100 * statistics.mean(errors):.1f} % over {len(errors)} layouts")


if __name__ == "__main__":
    main()
