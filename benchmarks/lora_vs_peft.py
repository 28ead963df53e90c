"""Adapters beside full tuning and beside the package peft: losses, tokens/s and peak memory, alternating in one run.

Tunes one Llama on one rank and one thread: all weights with trireme, adapters of all linear layers with trireme, and the
same adapters with peft on transformers. All begin with the same weights and adapters and see the same sequences in each
step. One more run of each in fp64 says how much of a difference between the losses is rounding. Prints a table of medians
and one of differences, and writes a dated note to benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, add_arguments, checked, train, write_note

VOCABULARY = 257
RATE, BETAS = 1e-3, (0.9, 0.95)
ALPHA = 16
# Prints the loss and the seconds of each step and the peak resident bytes.
PEFT = """
import contextlib, importlib.util, json, os, resource, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
import peft, torch, transformers
options = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location("recorder", options["recorder"])
recorder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recorder)
torch.set_num_threads(1)
dtype = getattr(torch, options["dtype"])
def exactly():
    return recorder.exact() if dtype == torch.float64 else contextlib.nullcontext()
with exactly():
    model = transformers.AutoModelForCausalLM.from_pretrained(options["folder"], dtype=dtype)
# Not inside, where a file's fp32 would be read as fp64.
model = peft.PeftModel.from_pretrained(model, options["adapter"], is_trainable=True).to(dtype)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=options["rate"], betas=options["betas"], eps=1e-8, weight_decay=0, fused=True)
batch = torch.tensor(options["batch"])
losses, seconds = [], []
for _ in range(options["steps"]):
    start = time.perf_counter()
    with exactly():
        logits = model(input_ids=batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def make_model(args, folder):
    checked([sys.executable, "-c", f"""
import torch, transformers
torch.manual_seed(1)
transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size={VOCABULARY}, hidden_size={args.width}, intermediate_size={args.width * 5 // 2},
    num_hidden_layers={args.layers}, num_attention_heads={args.width // 64}, num_key_value_heads={args.width // 64},
    max_position_embeddings={args.tokens})).save_pretrained({str(folder)!r})"""])


def prepare_text(args, folder):
    """One batch of text as token files, so that every step has all of it. Returns its sequences and their targets."""
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "docs/guide").glob("*.md")))
    text = text[:args.sequences * args.tokens]
    (folder / "text").write_bytes(text)
    checked([args.trireme, "data", "prepare", "--input", folder / "text", "--tokenizer", "bytes", "--validation-fraction",
             "0", "--output", folder / "tokens"])
    numbers = [*text, VOCABULARY - 1]  # the end of the document
    return [numbers[i:i + args.tokens + 1] for i in range(0, args.sequences * args.tokens, args.tokens)]


def options_of(args, folder):
    return [f"--init={folder / 'hf'}", f"--data.path={folder / 'tokens'}", f"--train.global_batch={args.sequences}",
            f"--train.micro_batch={args.sequences}", "--optimizer.schedule=constant", "--optimizer.warmup_steps=0",
            "--optimizer.weight_decay=0", f"--optimizer.beta1={BETAS[0]}", f"--optimizer.beta2={BETAS[1]}"]


def adapters(args):
    return [f"--lora.rank={args.rank}", f"--lora.alpha={ALPHA}"]


def make_adapter(args, folder):
    """The adapters that all runs begin with, in peft's form: those of a step that changes nothing."""
    checked([args.trireme, "train", f"--output.folder={folder / 'start'}", "--train.steps=1", "--optimizer.learning_rate=0",
             "--threads=1", *options_of(args, folder), *adapters(args)])
    checked([args.trireme, "checkpoint", "export", folder / "start", "--format", "peft", "--output", folder / "adapter"])


def of_trireme(args, folder, *options):
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as run:
        steps = train(args.trireme, "--ranks=1", run, "--threads=1", f"--train.steps={args.steps}",
                      f"--optimizer.learning_rate={RATE}", *options_of(args, folder), *options)
    return {"losses": [step["loss"] for step in steps], "seconds": [step["step_seconds"] for step in steps],
            "peak": max(step["peak_rss_bytes"] for step in steps)}


def of_peft(args, folder, batch, dtype):
    options = {"folder": str(folder / "hf"), "adapter": str(folder / "adapter"), "batch": batch, "steps": args.steps,
               "rate": RATE, "betas": BETAS, "dtype": dtype,
               "recorder": str(ROOT / "python/trireme_torch/recorder.py")}
    result = subprocess.run([sys.executable, "-c", PEFT, json.dumps(options)], capture_output=True, text=True, check=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(result.stdout.splitlines()[-1])


def largest_difference(losses, others):
    """Of one step, as a share of the loss, and the step."""
    return max((abs(a - b) / b, step) for step, (a, b) in enumerate(zip(losses, others, strict=True), start=1))


def differences(curves):
    """A line for each pair of curves."""
    pairs = (("trireme fp32", "peft fp32"), ("trireme fp64", "peft fp64"), ("trireme fp32", "trireme fp64"),
             ("peft fp32", "peft fp64"))
    found = {pair: largest_difference(curves[pair[0]], curves[pair[1]]) for pair in pairs}
    return [f"| {one} | {other} | {share:.1e} | {step} |" for (one, other), (share, step) in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--tokens", type=int, default=256, help="of a sequence")
    parser.add_argument("--sequences", type=int, default=8, help="per step")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=3, help="first steps left out of each median")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.trireme = args.trireme.resolve()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        batch = prepare_text(args, folder)
        make_model(args, folder / "hf")
        make_adapter(args, folder)
        own = [*adapters(args), f"--lora.init={folder / 'adapter'}"]
        ways = {"trireme, all weights": lambda: of_trireme(args, folder),
                "trireme, adapters": lambda: of_trireme(args, folder, *own),
                "trireme, adapters over nf4": lambda: of_trireme(args, folder, *adapters(args), "--lora.base=nf4"),
                "peft, adapters": lambda: of_peft(args, folder, batch, "float32")}
        speeds, peaks, losses = ({way: [] for way in ways} for _ in range(3))
        for _ in range(args.rounds):
            for way, run in ways.items():
                found = run()
                speeds[way].append(args.sequences * args.tokens / statistics.median(found["seconds"][args.warmup:]))
                peaks[way].append(found["peak"])
                losses[way] = found["losses"]
        curves = {"trireme fp32": losses["trireme, adapters"], "peft fp32": losses["peft, adapters"],
                  "trireme fp64": of_trireme(args, folder, *own, "--train.precision=fp64")["losses"],
                  "peft fp64": of_peft(args, folder, batch, "float64")["losses"]}
    speed = {way: statistics.median(values) for way, values in speeds.items()}
    peak = {way: statistics.median(values) for way, values in peaks.items()}
    ours = "trireme, adapters"
    if args.json:
        print(json.dumps({"ways": {way: {"tokens_per_second": speed[way], "peak_bytes": peak[way]} for way in ways},
                          "losses": curves}))
        return
    table = "\n".join(["| | tokens/s | adapters of trireme over it | peak MiB |", "|---|---|---|---|",
                       *(f"| {way} | {speed[way]:,.0f} | {speed[ours] / speed[way]:.2f} | {peak[way] / 2**20:.0f} |"
                         for way in ways)])
    first, last = curves["peft fp64"][0], curves["peft fp64"][-1]
    curve = "\n".join([f"The losses of {args.steps} steps from the same adapters on the same sequences, from {first:.3f} to "
                       f"{last:.3f}:", "", "| | beside | largest relative difference | at step |", "|---|---|---|---|",
                       *differences(curves)])
    print(table, curve, sep="\n\n")
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-adapters.md",
                   f"# Adapters beside full tuning and peft, {day}\n\nA Llama of {args.layers} layers, width {args.width}, "
                   f"T {args.tokens}, {args.sequences} sequences a step, fp32; adapters of rank {args.rank} on all linear\n"
                   f"layers of the blocks; one rank of one thread; medians of {args.rounds} alternating rounds. The peak is that of "
                   f"the process.\n\n{table}\n\n{curve}\n\nRepeat: `.venv/bin/python benchmarks/lora_vs_peft.py`.\n")


if __name__ == "__main__":
    main()
