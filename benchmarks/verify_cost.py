"""Measures what `trireme verify` costs beside one run: time, memory, disk; and probes that nobody listens to.

A small Llama is trained for 3 steps, and verified with tensor parallelism over two ranks; the two take turns. The
run's time is that of the program, start included, and so is verify's. Memory is the peak of one rank without and
with recorded activations, whose sizes say how large one unit's probe is and how large all of a step are, and of a
rank of verify, which saves the gradients and a checkpoint of each step too. With
--probe, the time of a probe that is off comes from that program (benchmarks/probe.cc).

    benchmarks/verify_cost.py --rounds 3
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trireme_runs import ROOT, prepare_random_tokens, shape

STEPS = 3
CONFIG = """
[model]
family = "llama"
sequence_length = 256
vocab_size = 4096
[data]
path = "tokens"
[train]
steps = 3
global_batch = 8
micro_batch = 4
[optimizer]
warmup_steps = 0
"""
LAYOUT = ["--ranks-b", "2", "--b", "parallel.tensor=2"]


def of_processor():
    times = os.times()
    return times.children_user + times.children_system


def timed(folder, *words):
    """By the clock, by the processor, which other programs on the machine hardly change, and what it printed."""
    start, before = time.monotonic(), of_processor()
    result = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed: {result.stderr.strip() or result.stdout}")
    return time.monotonic() - start, of_processor() - before, result.stdout


def peak_of(run):
    return max(json.loads(line)["peak_rss_bytes"] for line in (run / "metrics.jsonl").read_text().splitlines())


def probes_of(run):
    """The bytes of each probe of a step, over all its samples, by name."""
    tensors = json.loads((run / "activations/step-000001/manifest.json").read_text())["tensors"]
    sizes = {"F32": 4, "F64": 8, "float32": 4, "float64": 8}
    found = {}
    for name, tensor in tensors.items():
        size = sizes[tensor["dtype"]]
        for length in tensor["shape"]:
            size *= length
        found[name] = size
    return found


def bytes_below(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(args, folder):
    prepare_random_tokens(args.trireme, folder)
    (folder / "cost.toml").write_text(CONFIG)
    model = shape(args.layers, args.width)
    runs, verifies, processors, parts, peaks = [], [], [], [], {"off": [], "recorded": [], "verify": []}
    for number in range(args.rounds):
        for name in ("run", "recorded", "twins"):
            shutil.rmtree(folder / name, ignore_errors=True)
        train = [args.trireme, "train", "cost.toml", "--checkpoint.interval=0", "--train.precision=fp32", *model]
        seconds, processor, _ = timed(folder, *train, "--output.folder=run")
        runs.append(seconds)
        by_processor = [processor]
        peaks["off"].append(peak_of(folder / "run"))
        timed(folder, *train, "--output.folder=recorded", f"--record.activations={STEPS}")
        peaks["recorded"].append(peak_of(folder / "recorded"))
        seconds, processor, output = timed(folder, args.trireme, "verify", "cost.toml", *LAYOUT, "--steps", STEPS, "--output", "twins", *model)
        verifies.append(seconds)
        processors.append([*by_processor, processor])
        parts.append([float(text) for text in re.findall(r"steps in ([0-9.]+) s", " ".join(output.split()))])
        peaks["verify"].append(peak_of(folder / "twins/a-fp32"))
        print(f"bench: round {number + 1}: run {runs[-1]:.2f} s, verify {verifies[-1]:.2f} s of which {parts[-1]}",
              file=sys.stderr, flush=True)
    probes = probes_of(folder / "twins/a-fp32")
    microbatches = 2
    return {"run_s": statistics.median(runs), "verify_s": statistics.median(verifies), "runs": runs, "verifies": verifies,
            "parts": parts, "ratio": statistics.median(v / r for v, r in zip(verifies, runs)),
            "processor_s": processors, "processor_ratio": statistics.median(v / r for r, v in processors),
            "peak_off": statistics.median(peaks["off"]), "peak_recorded": statistics.median(peaks["recorded"]),
            "peak_verify": statistics.median(peaks["verify"]),
            "largest_probe": max(probes.values()) / microbatches, "all_probes": sum(probes.values()),
            "num_probes": sum(1 for name in probes if "@" not in name), "disk": bytes_below(folder / "twins"),
            "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=ROOT / "build/release/bin/trireme", type=Path)
    parser.add_argument("--probe", type=Path, help="probe_benchmark, to time a probe that is off")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    args.trireme = args.trireme.resolve()
    with tempfile.TemporaryDirectory(prefix="trireme-cost-") as folder:
        found = measure(args, Path(folder))
    if args.probe:
        found["probe_ns"] = float(subprocess.run([args.probe], capture_output=True, text=True, check=True).stdout)
    if args.json:
        print(json.dumps(found))
        return
    mib = lambda number: f"{number / 2 ** 20:.1f} MiB"
    print(f"one run {found['run_s']:.2f} s, verify {found['verify_s']:.2f} s, ratio {found['ratio']:.2f}, by the "
          f"processor {found['processor_ratio']:.2f}; load {found['load']:.1f}")
    print(f"peak of a rank {mib(found['peak_off'])} without, {mib(found['peak_recorded'])} with recorded probes, "
          f"{mib(found['peak_verify'])} in verify; "
          f"one probe of a microbatch {mib(found['largest_probe'])}, all of a step {mib(found['all_probes'])}; "
          f"disk of four runs {mib(found['disk'])}")
    if args.probe:
        print(f"a probe that is off takes {found['probe_ns']:.2f} ns; {found['num_probes']} in a microbatch")


if __name__ == "__main__":
    main()
