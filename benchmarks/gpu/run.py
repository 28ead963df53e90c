"""`trireme train` on one GPU beside PyTorch, and the tests that need a GPU.

  python benchmarks/gpu/run.py tests                 the tests of label gpu
  python benchmarks/gpu/run.py speed --models 953M   tokens/s, MFU and peak memory, by turns

Runs on a machine that need not build: benchmarks/gpu/bundle.sh packs the programs and all that this needs. `--program`
may be given several times, as name=path, to compare two builds. Every run of a round comes after those of the round
before, in turn forwards and backwards. No run begins that may end after `--seconds`. Results go to `--output`, as JSON
and as a table, after each run.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from models import MODELS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 4  # first steps of a run, in which memory is taken and kernels are loaded or compiled
# Relative. In bf16 each side rounds its activations in an order of its own.
SAME_LOSS = 0.005


class Clock:
    """Remembers how long each kind of run took, to know which still fit."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.longest = {}

    def left(self):
        return self.end - time.monotonic()

    def fits(self, kind):
        return self.left() > 1.1 * self.longest.get(kind, 0) + 5

    def took(self, kind, seconds):
        self.longest[kind] = max(self.longest.get(kind, 0), seconds)


def environment():
    """Of the programs, which find libtorch and the CUDA libraries inside PyTorch's wheel."""
    torch = Path(importlib.util.find_spec("torch").origin).parent
    folders = [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib")), ROOT / "lib"]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders)), "PYTHONUNBUFFERED": "1"}


class RunError(Exception):
    """A program failed; the text ends with its output."""


def run(command, timeout, **options):
    command = list(map(str, command))
    try:
        result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=max(1, timeout),
                                **options)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{' '.join(command)}: not done after {error.timeout:.0f} s") from error
    if result.returncode != 0:
        raise RunError(f"{' '.join(command)}: exit {result.returncode}\n{(result.stdout + result.stderr)[-3000:]}")
    return result.stdout


def tests(args):
    """Each of the test programs' test cases at once: on a GPU they wait for their host."""
    program = args.programs[0][1]
    text = (ROOT / "tests/cli/gpu_test.py").read_text()
    cases = re.findall(r"^    def (test_\w+)", text, flags=re.MULTILINE)
    commands = {f"Gpu.{case}": [sys.executable, ROOT / "tests/cli/gpu_test.py", "-v", f"Gpu.{case}"] for case in cases}
    commands |= {name: [program.with_name(name)] for name in ("nccl_test", "cuda_ipc_test", "gpu_kernels_test")}
    running = {}
    for name, command in commands.items():
        log = (args.output / f"{name}.log").open("w+")
        running[name] = log, subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT,
                                              env={**environment(), "TRIREME_PROGRAM": str(program)})
    failed = 0
    for name, (log, process) in running.items():
        try:
            code = process.wait(timeout=max(1, args.clock.left()))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        log.seek(0)
        text = log.read()
        failed += code != 0
        print(f"{name}: {'passed' if code == 0 else f'exit {code}'}")
        print(text[-(400 if code == 0 else 5000):])
    return failed


def make_data(program, folder, model):
    """Random bytes for one step: every step reads all of them, in whichever order."""
    data = folder / f"tokens-{model.name}"
    if not data.with_suffix(".bin").exists():
        text = folder / f"text-{model.name}"
        text.write_bytes(os.urandom(model.tokens_per_step))
        run([program, "data", "prepare", "--input", text, "--tokenizer", "bytes", "--validation-fraction", 0,
             "--output", data], 60)
    return data


def prepare_trireme(program, folder, model, data, *keys):
    """The folder and the command of a run of so many steps that the caller ends it."""
    output = folder / "run"
    config = folder / "gpu.toml"
    config.write_text(f"[data]\npath = {json.dumps(str(data))}\n")
    settings = ["--train.precision=bf16", "--train.device=cuda", "--train.gradient_clip=1", "--optimizer.schedule=constant",
                "--optimizer.learning_rate=1e-4", "--optimizer.warmup_steps=0", "--optimizer.weight_decay=0.1",
                "--optimizer.groups=*norm.weight: decay=0.1", "--checkpoint.interval=0", "--train.steps=100000"]
    shutil.rmtree(output, ignore_errors=True)
    return output, [program, "train", config, "--threads", min(16, os.cpu_count()), f"--output.folder={output}",
                    *model.keys(), *settings, *keys]


def run_steps(command, output, num_steps, timeout):
    """The first steps of the run. It is killed then, as its end would write a checkpoint of many gigabytes."""
    metrics, log, end = output / "metrics.jsonl", output.with_suffix(".log"), time.monotonic() + timeout
    with log.open("w") as text:
        process = subprocess.Popen(list(map(str, command)), stdout=text, stderr=subprocess.STDOUT, env=environment(),
                                   start_new_session=True)
    try:
        while True:
            lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
            if len(lines) > num_steps or (len(lines) == num_steps and lines[-1].endswith("\n")):
                return [json.loads(line) for line in lines[:num_steps]]
            if process.poll() is not None:
                raise RunError(f"{' '.join(map(str, command))}: exit {process.returncode}\n{log.read_text()[-3000:]}")
            if time.monotonic() > end:
                raise RunError(f"{' '.join(map(str, command))}: not done after {timeout:.0f} s\n{log.read_text()[-3000:]}")
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for left in Path("/dev/shm").glob(f"trireme-{process.pid}-*"):
            left.unlink()


def result_of(seconds, losses, peak_device_bytes, own_mfu=None):
    """own_mfu: trireme's, of the GPU's peak by its data sheet."""
    return {"step_seconds": statistics.median(seconds[SKIPPED:]), "first_loss": losses[0], "last_loss": losses[-1],
            "peak_device_bytes": peak_device_bytes, "own_mfu": own_mfu, "seconds": seconds}


def measure(args, kind, path, folder, model, data, *keys):
    if path is None:
        command = [sys.executable, HERE / "peer.py", "--form", kind, "--model", model.name, "--data", data, *keys]
        found = json.loads(run(command, args.clock.left()).splitlines()[-1])
        return result_of(**found)
    output, command = prepare_trireme(path, folder, model, data, *keys)
    steps = run_steps(command, output, model.steps, args.clock.left())
    return result_of([step["step_seconds"] for step in steps], [step["loss"] for step in steps],
                     max(step["peak_device_bytes"] for step in steps), steps[-1].get("mfu"))


def check_losses(args, folder):
    """Both sides from the same weights on the same sequences: the losses of the last step."""
    model, (name, program) = MODELS["check"], args.programs[-1]
    data = make_data(program, folder, model)
    output, command = prepare_trireme(program, folder, model, data, "--train.precision=fp32", "--train.steps=1",
                                  "--optimizer.learning_rate=0", "--checkpoint.interval=1")
    run(command, args.clock.left())
    weights = folder / "weights.safetensors"
    os.rename(output / "checkpoints/step-000001/rank-000-of-001.safetensors", weights)
    theirs = measure(args, "autocast", None, folder, model, data, "--weights", weights)
    ours = measure(args, name, program, folder, model, data)
    losses = {key: (theirs[key], ours[key]) for key in ("first_loss", "last_loss")}
    print("same weights, loss of PyTorch and Trireme: " + ", ".join(
        f"{key.replace('_', ' ')} {a:.5f} and {b:.5f}" for key, (a, b) in losses.items()), flush=True)
    if any(abs(a - b) > SAME_LOSS * a for a, b in losses.values()):
        sys.exit("bench: the two do not train the same model")
    return losses


def table(results, limits):
    peak = limits["product_flops"]
    lines = ["| model | program | tokens/s | TFLOP/s | MFU | peak memory | runs | Trireme relative to it |", "|---|---|---|---|---|---|---|---|"]
    for name, runs in results.items():
        model = MODELS[name]
        own = next((kind for kind in reversed(runs) if kind.startswith("trireme")), None)
        for kind, found in runs.items():
            if not found:
                continue
            seconds = statistics.median(each["step_seconds"] for each in found)
            rate = model.tokens_per_step / seconds
            flops = rate * model.flops_per_token
            ratios = [theirs["step_seconds"] / ours["step_seconds"] for theirs, ours in zip(found, runs[own] if own else [])]
            ratio = f"{statistics.median(ratios):.2f}" if ratios and kind != own else ""
            lines.append(f"| {name} | {kind} | {rate:.0f} | {flops / 1e12:.0f} | {flops / peak:.1%} | "
                         f"{max(each['peak_device_bytes'] for each in found) / 2**30:.1f} GiB | {len(found)} | {ratio} |")
    return "\n".join(lines)


def speed(args):
    with tempfile.TemporaryDirectory(prefix="trireme-gpu-") as folder:
        return measure_all(args, Path(folder))


def measure_all(args, folder):
    limits = json.loads(run([sys.executable, HERE / "peer.py", "--limits"], 120).splitlines()[-1])
    print(json.dumps(limits), flush=True)
    found = {"limits": limits, "losses": check_losses(args, folder) if not args.no_check else None, "speed": {}}
    kinds = [(name, path) for name, path in args.programs] + [(peer, None) for peer in args.peers]
    failed = {}
    for round_index in range(args.rounds):
        for model in (MODELS[name] for name in args.models):
            results = found["speed"].setdefault(model.name, {kind: [] for kind, _ in kinds})
            data = make_data(args.programs[-1][1], folder, model)
            for kind, path in kinds if round_index % 2 == 0 else kinds[::-1]:
                key = f"{model.name} {kind}"
                if key in failed or not args.clock.fits(key):
                    continue
                begin = time.monotonic()
                try:
                    results[kind].append(measure(args, kind, path, folder, model, data))
                except RunError as error:
                    failed[key] = str(error)
                    print(f"bench: {key}: {error}", flush=True)
                    continue
                args.clock.took(key, time.monotonic() - begin)
                last = results[kind][-1]
                print(f"round {round_index + 1} {key}: {last['step_seconds'] * 1e3:.1f} ms, losses {last['first_loss']:.4f} to "
                      f"{last['last_loss']:.4f}, {time.monotonic() - begin:.0f} s, {args.clock.left():.0f} s left", flush=True)
                (args.output / "speed.json").write_text(json.dumps(found))
    text = table(found["speed"], limits)
    (args.output / "speed.md").write_text(text + "\n")
    print(text)
    return len(failed)


def named_program(text):
    name, found, path = text.partition("=")
    return (name, Path(path).resolve()) if found else ("trireme", Path(text).resolve())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tests", "speed"])
    parser.add_argument("--program", dest="programs", type=named_program, action="append",
                        help="path, or name=path with a name that begins with trireme; default: bin/trireme")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["953M", "134M"])
    parser.add_argument("--peers", nargs="*", default=["masters", "autocast", "compiled"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=400, help="of the whole run")
    parser.add_argument("--no-check", action="store_true", help="do not compare losses first")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", "gpu-results")))
    args = parser.parse_args()
    args.programs = args.programs or [("trireme", ROOT / "bin/trireme")]
    args.clock = Clock(args.seconds)
    args.output.mkdir(parents=True, exist_ok=True)
    sys.exit(1 if {"tests": tests, "speed": speed}[args.what](args) else 0)


if __name__ == "__main__":
    main()
