"""Generation beside transformers: tokens/s of the same Llama, on one thread, alternating in one run.

Draws a Llama, saves it as transformers does, imports it, and continues one prompt by the likeliest tokens, with trireme
generate and with transformers' generate and its cache; on request several prompts at once. Prints a table of medians, and
how many of the tokens are the same; writes a dated note to benchmarks/results/.
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

from trireme_runs import add_arguments, checked, write_note

MAKE = """
import json, sys
import torch, transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
options = json.loads(sys.argv[1])
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator([], trainers.BpeTrainer(
    vocab_size=257, special_tokens=["</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
torch.manual_seed(1)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=options["vocabulary"], hidden_size=options["width"], intermediate_size=options["width"] * 5 // 2,
    num_hidden_layers=options["layers"], num_attention_heads=options["width"] // 64,
    num_key_value_heads=max(1, options["width"] // 64 // 2), max_position_embeddings=options["length"],
    initializer_range=0.08, eos_token_id=None, bos_token_id=None))
with torch.no_grad():
    model.lm_head.weight[0] = 0  # so that no text ends: others have a positive logit
model.save_pretrained(options["folder"])
tokenizer.save(options["folder"] + "/tokenizer.json")
with open(options["folder"] + "/tokenizer_config.json", "w") as file:
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}, file)
"""
PEER = """
import json, os, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
from tokenizers import Tokenizer
options = json.loads(sys.argv[1])
torch.set_num_threads(1)
model = transformers.AutoModelForCausalLM.from_pretrained(options["folder"], dtype=getattr(torch, options["dtype"])).eval()
tokenizer = Tokenizer.from_file(options["folder"] + "/tokenizer.json")
end = tokenizer.token_to_id("</s>")
prompts = torch.tensor([[end] + tokenizer.encode(prompt).ids for prompt in options["prompts"]])
settings = dict(do_sample=False, use_cache=True, pad_token_id=end, attention_mask=torch.ones_like(prompts),
                suppress_tokens=list(range(257, model.config.vocab_size)))
if not settings["suppress_tokens"]:
    del settings["suppress_tokens"]
with torch.no_grad():
    model.generate(prompts, max_new_tokens=2, **settings)
    start = time.perf_counter()
    out = model.generate(prompts, max_new_tokens=options["tokens"], min_new_tokens=options["tokens"], **settings)
    seconds = time.perf_counter() - start
texts = [tokenizer.decode(one[prompts.shape[1]:].tolist()) for one in out]
print(json.dumps({"seconds": seconds, "texts": texts}))
"""


def of_trireme(args, folder, prompts, *options):
    lines = folder / "prompts.jsonl"
    lines.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    result = subprocess.run(
        [args.trireme.resolve(), "generate", "--checkpoint", folder / "run", "--prompts", lines, "--tokens", str(args.tokens),
         "--temperature", "0", *options],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode != 0:
        sys.exit(result.stderr)
    seconds = float(result.stderr.split(" tokens in ")[1].split(" s")[0])
    return seconds, [json.loads(line) for line in result.stdout.splitlines()]


def of_transformers(args, folder, prompts):
    options = {"folder": str(folder / "hf"), "prompts": prompts, "tokens": args.tokens,
               "dtype": {"fp32": "float32", "bf16": "bfloat16"}[args.precision]}
    result = subprocess.run([sys.executable, "-c", PEER, json.dumps(options)], capture_output=True, text=True, check=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(result.stdout.splitlines()[-1])
    return found["seconds"], found["texts"]


def same_prefix(ours, theirs):
    return next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512, help="a multiple of 128")
    parser.add_argument("--vocabulary", type=int, default=257)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--texts", type=int, default=1, help="that grow at one time")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    prompts = [f"{i}: once upon a time " for i in range(args.texts)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checked([sys.executable, "-c", MAKE, json.dumps({
            "vocabulary": args.vocabulary, "width": args.width, "layers": args.layers, "length": args.tokens + 64,
            "folder": str(folder / "hf")})])
        checked([args.trireme.resolve(), "checkpoint", "import", folder / "hf", "--output", folder / "run",
                 "--dtype", args.precision])
        seconds = {"trireme": [], "transformers": []}
        for _ in range(args.rounds):
            ours, lines = of_trireme(args, folder, prompts, "--batch", str(args.texts))
            theirs, texts = of_transformers(args, folder, prompts)
            seconds["trireme"].append(ours)
            seconds["transformers"].append(theirs)
        again = statistics.median(of_trireme(args, folder, prompts, "--no-cache")[0] for _ in range(1))
    total = args.tokens * args.texts
    rates = {program: total / statistics.median(times) for program, times in seconds.items()}
    rates["trireme, --no-cache"] = total / again
    if any(line["tokens"] != args.tokens for line in lines):
        sys.exit("a text ended early; draw another model")
    same = [same_prefix(line["text"], text) for line, text in zip(lines, texts, strict=True)]
    report = {"tokens_per_second": rates, "ratio": rates["trireme"] / rates["transformers"],
              "characters_the_same": same, "characters": [len(text) for text in texts]}
    if args.json:
        print(json.dumps(report, indent=2))
        return
    text = (f"# Generation beside transformers, {datetime.date.today()}\n\nA Llama of {args.layers} layers, width {args.width}, "
            f"vocabulary {args.vocabulary}, {args.precision}; {args.texts} x {args.tokens} new tokens, always the likeliest; "
            f"one\nthread; medians of {args.rounds} alternating rounds.\n\n| program | tokens/s |\n|---|---|\n")
    for program, rate in rates.items():
        text += f"| {program} | {rate:.1f} |\n"
    text += f"\ntrireme / transformers: {report['ratio']:.2f}. Characters of the texts that are the same: {same}.\n"
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-generate.md", text)


if __name__ == "__main__":
    main()
