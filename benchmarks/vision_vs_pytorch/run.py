"""Image classifiers beside PyTorch's DistributedDataParallel over Gloo, on two local ranks.

  .venv/bin/python benchmarks/vision_vs_pytorch/run.py speed      images per second, by turns, eager and compiled
  .venv/bin/python benchmarks/vision_vs_pytorch/run.py accuracy   three seeds of each on icons or glyphs
  .venv/bin/python benchmarks/vision_vs_pytorch/run.py same       losses of both from the same weights and images

Both sides have one thread per rank, the same model, batch and optimizer. PyTorch reads its images into memory before
the first step; Trireme reads them while it trains. Needs `tools/setup.sh test` and, for accuracy, `tools/setup.sh
vision`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from trireme_runs import ROOT, add_arguments, checked, train, write_note  # noqa: E402

sys.path.insert(0, str(ROOT / "tools"))
from svg_plot import COLOURS, Curve, draw  # noqa: E402

PYTORCH = Path(__file__).with_name("pytorch_vision.py")

# Of the models that are compared: Trireme's keys and PyTorch's options.
VIT = {"model.family": "vit", "model.patch_size": 4, "model.layers": 6, "model.width": 192, "model.heads": 3,
       "model.ffn_width": 768}
SMALL_VIT = {**VIT, "model.patch_size": 8, "model.width": 128, "model.heads": 4, "model.ffn_width": 512}
RESNET = {"model.family": "resnet18"}

# By data: models with their learning rate and steps, and images in a step.
ACCURACY_OF = {"icons": [("ViT", SMALL_VIT, 5e-4, 300), ("ResNet-18", RESNET, 1e-3, 300)],
               "glyphs": [("ViT", {**SMALL_VIT, "model.layers": 4}, 1e-3, 900), ("ResNet-18", RESNET, 1e-3, 300)]}
ACCURACY_BATCH = {"icons": 64, "glyphs": 128}


def pytorch_options(model):
    if model["model.family"] != "vit":
        return ["--model", model["model.family"], "--stem", model.get("model.stem", "large"), "--channels-last"]
    names = {"patch_size": "patch-size", "layers": "layers", "width": "width", "heads": "heads", "ffn_width": "ffn-width"}
    return ["--model", "vit", *sum(([f"--{option}", str(model[f"model.{key}"])] for key, option in names.items()), [])]


def run_pytorch(data, model, options, port):
    command = [sys.executable, PYTORCH, "--data", data, "--port", port, *pytorch_options(model), *options]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def run_trireme(program, data, model, options, folder, ranks=2):
    config = folder / "vision.toml"
    config.write_text('[task]\nname = "vision"\n')
    keys = [f"--{key}={value}" for key, value in model.items()]
    return train(program, config, folder / "run", "--ranks", ranks, f"--data.path={data}", *keys, *options)


def write_cifar(folder):
    """CIFAR-10's files with made-up images, for speed alone."""
    import numpy as np

    numbers = np.random.default_rng(1)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        records = numbers.integers(0, 256, (400, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(folder / name)


def per_second(seconds, batch, skip):
    return batch / statistics.median(seconds[skip:])


def speed(args):
    lines = []
    for name, model, batch in [("ViT", VIT, 64), ("ResNet-18", {**RESNET, "model.stem": "small"}, 32)]:
        if args.only and args.only != name:
            continue
        rates = {"Trireme": [], "PyTorch": [], "PyTorch compiled": []}
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            data = folder / "cifar"
            data.mkdir()
            write_cifar(data)
            steps, skip = args.steps, args.steps // 3  # compilation and warm-up are in the first steps
            for round_number in range(args.rounds):
                keys = [f"--train.steps={steps}", f"--train.global_batch={batch}", f"--train.micro_batch={batch // 2}",
                        "--optimizer.warmup_steps=2", f"--train.precision={args.precision}", "--threads", 1]
                own = folder / f"trireme{round_number}"
                own.mkdir()
                steps_of_trireme = run_trireme(args.trireme, data, model, keys, own)
                rates["Trireme"].append(per_second([s["step_seconds"] for s in steps_of_trireme], batch, skip))
                for kind, extra in [("PyTorch", []), ("PyTorch compiled", ["--compile"])]:
                    options = ["--steps", steps, "--global-batch", batch, "--warmup-steps", 2, *extra]
                    options += ["--bf16"] if args.precision == "bf16" else []
                    found = run_pytorch(data, model, options, args.port)
                    rates[kind].append(per_second(found["seconds"], batch, skip))
                print(f"{name} round {round_number + 1}: " + ", ".join(f"{k} {v[-1]:.1f}" for k, v in rates.items()),
                      file=sys.stderr, flush=True)
        medians = {kind: statistics.median(values) for kind, values in rates.items()}
        ratios = {kind: statistics.median([a / b for a, b in zip(rates["Trireme"], rates[kind])]) for kind in rates}
        for kind in rates:
            lines.append(f"| {name} | {kind} | {medians[kind]:.1f} | {ratios[kind]:.2f} |")
    return ["| model | program | images/s | Trireme's are so many times as many |", "|---|---|---|---|", *lines]


def prepared(name):
    data = ROOT / "data" / name
    if not data.exists():
        checked([sys.executable, ROOT / "tools/vision_data.py", name, data])
    return data


def accuracy(args):
    data = prepared(args.data)
    lines, curves = [], []
    for name, model, rate, steps in ACCURACY_OF[args.data]:
        if args.only and args.only != name:
            continue
        steps = args.steps or steps
        batch = ACCURACY_BATCH[args.data]
        found = {"Trireme": [], "PyTorch": []}
        for seed in args.seeds:
            flip = args.data == "icons"  # a mirrored letter may be another one
            with tempfile.TemporaryDirectory() as temporary:
                lines_of_run = run_trireme(args.trireme, data, model, [
                    f"--train.steps={steps}", f"--train.global_batch={batch}", f"--train.micro_batch={batch // 2}",
                    f"--train.seed={seed}", f"--data.seed={seed}", f"--augment.flip={str(flip).lower()}",
                    f"--optimizer.learning_rate={rate}", "--optimizer.weight_decay=0.05", "--optimizer.warmup_steps=20",
                    f"--train.evaluate_interval={steps // 10}", "--train.evaluate_sequences=100000", "--threads", 1],
                    Path(temporary))
            found["Trireme"].append([(s["step"], s["validation_accuracy"]) for s in lines_of_run if "validation_accuracy" in s])
            result = run_pytorch(data, model, ["--steps", steps, "--global-batch", batch, "--seed", seed,
                                               *(["--flip"] if flip else []), "--warmup-steps", 20, "--learning-rate", rate,
                                               "--weight-decay", 0.05, "--evaluate-interval", steps // 10], args.port)
            found["PyTorch"].append(result["accuracies"])
            print(f"{name} seed {seed}: " + ", ".join(f"{k} {v[-1][-1][1]:.4f}" for k, v in found.items()),
                  file=sys.stderr, flush=True)
        for kind, runs in found.items():
            last = [run[-1][1] for run in runs]
            shown = " ".join(f"{value:.4f}" for value in last)
            spread = statistics.stdev(last) if len(last) > 1 else 0
            lines.append(f"| {name} | {kind} | {shown} | {statistics.mean(last):.4f} | {spread:.4f} |")
            colour = COLOURS[len(curves) // (2 * len(args.seeds)) * 2 + (kind == "PyTorch")]
            curves += [Curve(run, colour, "" if i else f"{name}, {kind}", dashed=kind == "PyTorch")
                       for i, run in enumerate(runs)]
    if args.svg:
        args.svg.write_text(draw(curves, 0, 1, f"accuracy on the validation {args.data}", legend="bottom"))
    return ["| model | program | accuracy of each seed | mean | deviation |", "|---|---|---|---|---|", *lines]


def same(args):
    """One rank, fp64, all icons in each step: no order and no draws, so both compute the same numbers."""
    data = prepared("icons")
    count = sum(1 for _ in (data / "train").glob("*/*"))
    lines = ["| model | relative difference of the losses, step by step | accuracy of each |", "|---|---|---|"]
    for name, model, rate in [("ViT", SMALL_VIT, 5e-4), ("ResNet-18", RESNET, 1e-3)]:
        if args.only and args.only != name:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            batch = [f"--train.global_batch={count}", f"--train.micro_batch={count}", "--train.precision=fp64"]

            def run_alone(name, *options):
                (folder / name).mkdir()
                return run_trireme(args.trireme, data, model, [*batch, *options], folder / name, ranks=1)

            run_alone("start", "--train.steps=1", "--optimizer.learning_rate=0", "--optimizer.weight_decay=0")
            ours = run_alone("whole", f"--train.steps={args.steps}", f"--optimizer.learning_rate={rate}",
                             "--optimizer.weight_decay=0.05", "--optimizer.warmup_steps=5",
                             f"--train.evaluate_interval={args.steps}", "--train.evaluate_sequences=100000")
            theirs = run_pytorch(data, model, ["--ranks", 1, "--steps", args.steps, "--whole", "--double",
                                               "--warmup-steps", 5, "--learning-rate", rate, "--weight-decay", 0.05,
                                               "--weights", folder / "start/run/checkpoints/step-000001"], args.port)
        differences = [abs(a["loss"] - b) / b for a, b in zip(ours, theirs["losses"], strict=True)]
        shown = " ".join(f"{difference:.0e}" for difference in differences)
        lines.append(f"| {name} | {shown} | {ours[-1]['validation_accuracy']:.4f} {theirs['accuracies'][-1][1]:.4f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "accuracy", "same"])
    parser.add_argument("--steps", type=int, default=None, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program, by turns")
    parser.add_argument("--only", choices=["ViT", "ResNet-18"], help="leave the other model out")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of speed; PyTorch's bf16 is autocast")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of accuracy")
    parser.add_argument("--data", choices=sorted(ACCURACY_OF), default="icons", help="of accuracy")
    parser.add_argument("--svg", type=Path, help="where accuracy draws its curves")
    parser.add_argument("--port", type=int, default=29671, help="of PyTorch's rendezvous on 127.0.0.1")
    add_arguments(parser)
    args = parser.parse_args()
    args.steps = args.steps or {"speed": 24, "accuracy": None, "same": 5}[args.what]
    table = "\n".join({"speed": speed, "accuracy": accuracy, "same": same}[args.what](args))
    print(table)
    if not args.no_note:
        part = "-bf16" if args.precision == "bf16" else ""
        write_note(f"{time.strftime('%Y-%m-%d')}-vision-{args.what}{part}.md", f"# Vision: {args.what}{part}\n\n{table}\n")


if __name__ == "__main__":
    main()
