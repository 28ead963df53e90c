"""Runs `trireme verify` on the eighteen layouts of pytorch/torchtitan#3029, rebuilt for a small model.

A comment of 4 August 2026 there lists eighteen layouts of one model with eight experts, all with seed 42, a global
batch of 8 and microbatches of 1. Their losses differ from the first step on, by 0.047 of 12.06, and nobody says
why. Here each is compared with one rank. The table has the finding, the losses of both in fp32, and the loss of
one rank that begins with other weights, or with other samples. Every result is a line of results.jsonl in
--folder: the same command goes on where it was stopped. Exits with 1 when a layout differs by more than rounding.

    benchmarks/verify_layouts.py
"""

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path

from verify_mutations import ROOT, Place, Results

STEPS = 3
CONFIG = """
[model]
family = "mixtral"
layers = 8
width = 32
heads = 4
kv_heads = 4
ffn_width = 64
experts = 8
expert_width = 32
sequence_length = 32
[data]
path = "data/tiny"
[train]
steps = 20
global_batch = 8
micro_batch = 1
seed = 42
[optimizer]
warmup_steps = 2
"""
# The thread's layout, the loss of its first step there, and the ranks and keys here.
LAYOUTS = [
    ("single-GPU", 12.05575, 1, []),
    ("fsdp2", 12.07003, 2, ["zero=3"]),
    ("pp2", 12.04905, 2, ["pipeline=2"]),
    ("cp2", 12.06936, 2, ["context=2"]),
    ("tp2", 12.05239, 2, ["tensor=2"]),
    ("fsdp2 x tp2 x pp2", 12.05729, 8, ["zero=3", "tensor=2", "pipeline=2"]),
    ("fsdp2 x tp2 x cp2", 12.04102, 8, ["zero=3", "tensor=2", "context=2"]),
    ("tp2 x pp2 x cp2", 12.04419, 8, ["tensor=2", "pipeline=2", "context=2"]),
    ("fsdp2 x pp2 x cp2", 12.07969, 8, ["zero=3", "pipeline=2", "context=2"]),
    ("ep2 x fsdp2", 12.07003, 2, ["expert=2", "zero=3"]),
    ("ep2 x fsdp2 x tp2 x pp2", 12.03851, 8, ["expert=2", "zero=3", "tensor=2", "pipeline=2"]),
    ("ep2 x fsdp2 x tp2 x cp2", 12.05770, 8, ["expert=2", "zero=3", "tensor=2", "context=2"]),
    ("ep2 x fsdp2 x pp2 x cp2", 12.06318, 8, ["expert=2", "zero=3", "pipeline=2", "context=2"]),
    ("ep8 x fsdp8", 12.03346, 8, ["expert=8", "zero=3"]),
    ("pp4", 12.06240, 4, ["pipeline=4"]),
    ("pp8", 12.04408, 8, ["pipeline=8"]),
    ("tp4", 12.03252, 4, ["tensor=4"]),
    ("cp4", 12.07386, 4, ["context=4"]),
]
CONTROLS = {"other initial weights": ["train.seed=43"], "other samples": ["data.seed=43"]}


def try_layout(place, ranks, keys):
    keys = [f"parallel.{key}" for key in keys]
    found = place.verify(ranks, keys, [], STEPS, "layouts.toml")
    losses = {side: [step["loss"] for step in place.metrics(f"twins/{side}-fp32")] for side in ("a", "b")}
    is_fine = found["finding"] in ("same", "rounding")
    return {"ranks": ranks, "keys": " ".join(keys), "finding": found["finding"], **losses,
            "rounding": found.get("largest_rounding_fp64"), "compared": found.get("compared"),
            "first": None if is_fine else found.get("first") or found.get("refused")}


def try_control(place, keys):
    shutil.rmtree(place.folder / "control", ignore_errors=True)
    words = [f"--{key}" for key in keys]
    result = place.run("train", "layouts.toml", "--output.folder=control", "--checkpoint.interval=0", "--train.precision=fp32",
                       f"--train.steps={STEPS}", *words)
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    return {"losses": [step["loss"] for step in place.metrics("control")]}


def table_of(layouts, controls):
    lines = ["| layout of the thread | step 1 there | ranks and keys here | finding | largest difference in fp64 | "
             "loss, step 1 | loss, step 3 |", "|---|---|---|---|---|---|---|"]
    digits = lambda losses: " | ".join(f"{losses[at]:.9f}" for at in (0, -1)) if losses else " | "
    for (name, there, *_), found in zip(LAYOUTS, layouts):
        rounding = "" if found["rounding"] is None else f"{found['rounding']:.1e}"
        lines.append(f"| {name} | {there:.5f} | {found['ranks']} {found['keys']} | {found['finding']} | {rounding} | "
                     f"{digits(found['b'])} |")
    for name, found in controls.items():
        lines.append(f"| one rank, {name} | | 1 {' '.join(CONTROLS[name])} | | | {digits(found['losses'])} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=ROOT / "build/release/bin/trireme", type=Path)
    parser.add_argument("--folder", default="runs/layouts", type=Path, help="for data, runs and results.jsonl; its own")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so many")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # kills the program that runs
    place = Place(args.trireme, args.folder)
    (args.folder / "layouts.toml").write_text(CONFIG)
    store = Results(args.folder / "results.jsonl", time.monotonic() + 60 * args.minutes)
    layouts, controls = [], {}
    for name, _, ranks, keys in LAYOUTS:
        found = store.get(name, lambda r=ranks, k=keys: try_layout(place, r, k))
        if found is None:
            break
        layouts.append(found)
        print(f"bench: {name}: {found['finding']}, {found['first'] or ''}", file=sys.stderr, flush=True)
    for name, keys in CONTROLS.items():
        found = store.get(name, lambda k=keys: try_control(place, k))
        if found is not None:
            controls[name] = found
    if args.json:
        print(json.dumps({"layouts": layouts, "controls": controls}))
    else:
        print("\n".join(table_of(layouts, controls)))
        print(f"{len(layouts)} of {len(LAYOUTS)} layouts")
    return 0 if all(found["finding"] in ("same", "rounding") for found in layouts) else 1


if __name__ == "__main__":
    sys.exit(main())
