"""Adapters beside full tuning and beside the package peft: tokens/s and peak memory, alternating in one run.

Tunes one Llama on one rank and one thread: all weights with trireme, adapters of all linear layers with trireme, and the
same adapters with peft on transformers. Prints a table of medians and writes a dated note to benchmarks/results/.
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

from trireme_runs import add_arguments, checked, prepare_random_tokens, train, write_note

VOCABULARY = 257
# Prints the seconds of each step and the peak resident bytes. The batch is drawn: its values do not matter.
PEFT = """
import json, os, resource, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
import peft, torch, transformers
options = json.loads(sys.argv[1])
torch.set_num_threads(1)
model = transformers.AutoModelForCausalLM.from_pretrained(options["folder"], dtype=torch.float32)
model = peft.get_peft_model(model, peft.LoraConfig(r=options["rank"], lora_alpha=16, target_modules="all-linear",
                                                   task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, fused=True)
batch = torch.randint(0, 257, (options["sequences"], options["tokens"] + 1))
seconds = []
for _ in range(options["steps"]):
    start = time.perf_counter()
    logits = model(input_ids=batch[:, :-1]).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - start)
print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def make_model(args, folder):
    checked([sys.executable, "-c", f"""
import transformers
transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size={VOCABULARY}, hidden_size={args.width}, intermediate_size={args.width * 5 // 2},
    num_hidden_layers={args.layers}, num_attention_heads={args.width // 64}, num_key_value_heads={args.width // 64},
    max_position_embeddings={args.tokens})).save_pretrained({str(folder)!r})"""])


def of_trireme(args, folder, *options):
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as run:
        steps = train(args.trireme.resolve(), "--ranks=1", run, "--threads=1", f"--init={folder / 'hf'}",
                      f"--data.path={folder / 'tokens'}", f"--train.steps={args.steps}",
                      f"--train.global_batch={args.sequences}", f"--train.micro_batch={args.sequences}", *options)
    seconds = [step["step_seconds"] for step in steps]
    return seconds, max(step["peak_rss_bytes"] for step in steps)


def of_peft(args, folder):
    options = {"folder": str(folder / "hf"), "rank": args.rank, "sequences": args.sequences, "tokens": args.tokens,
               "steps": args.steps}
    result = subprocess.run([sys.executable, "-c", PEFT, json.dumps(options)], capture_output=True, text=True, check=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(result.stdout.splitlines()[-1])
    return found["seconds"], found["peak"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--tokens", type=int, default=256, help="of a sequence")
    parser.add_argument("--sequences", type=int, default=8, help="per step")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3, help="first steps left out of each median")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder, 1 << 18)
        make_model(args, folder / "hf")
        ways = {"trireme, all weights": lambda: of_trireme(args, folder),
                "trireme, adapters": lambda: of_trireme(args, folder, f"--lora.rank={args.rank}"),
                "trireme, adapters over nf4": lambda: of_trireme(args, folder, f"--lora.rank={args.rank}", "--lora.base=nf4"),
                "peft, adapters": lambda: of_peft(args, folder)}
        speeds, peaks = {way: [] for way in ways}, {way: [] for way in ways}
        for _ in range(args.rounds):
            for way, run in ways.items():
                seconds, peak = run()
                speeds[way].append(args.sequences * args.tokens / statistics.median(seconds[args.warmup:]))
                peaks[way].append(peak)
    speed = {way: statistics.median(values) for way, values in speeds.items()}
    peak = {way: statistics.median(values) for way, values in peaks.items()}
    ours = "trireme, adapters"
    if args.json:
        print(json.dumps({way: {"tokens_per_second": speed[way], "peak_bytes": peak[way]} for way in ways}))
        return
    table = "\n".join(["| | tokens/s | adapters of trireme over it | peak MiB |", "|---|---|---|---|",
                       *(f"| {way} | {speed[way]:,.0f} | {speed[ours] / speed[way]:.2f} | {peak[way] / 2**20:.0f} |"
                         for way in ways)])
    print(table)
    if not args.no_note:
        day = datetime.date.today().isoformat()
        write_note(f"{day}-adapters.md",
                   f"# Adapters beside full tuning and peft, {day}\n\nA Llama of {args.layers} layers, width {args.width}, "
                   f"T {args.tokens}, {args.sequences} sequences a step, fp32; adapters of rank {args.rank} on all linear\n"
                   f"layers of the blocks; one rank of one thread; medians of {args.rounds} alternating rounds. The peak is that of "
                   f"the process.\n\n{table}\n\nRepeat: `.venv/bin/python benchmarks/lora_vs_peft.py`.\n")


if __name__ == "__main__":
    main()
