"""Shared by the benchmarks that run `trireme train`."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def checked(command, expected=None):
    """Runs it in the repository's root and returns what it prints. If it fails, shows that and ends the benchmark; with the text
    that is `expected` among its errors, returns those."""
    result = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        if expected and expected in result.stderr:
            return result.stderr
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def train(program, config, folder, *options):
    """The steps of a new run, as in its metrics.jsonl."""
    checked([program, "train", config, f"--output.folder={folder}", "--checkpoint.interval=0", *options])
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


# A small Llama of three steps; shape() gives the rest.
SMALL_LLAMA = """
[model]
family = "llama"
sequence_length = 64
vocab_size = 8192
[train]
micro_batch = 1
steps = 3
[optimizer]
warmup_steps = 0
"""


def shape(layers, width):
    return [f"--model.layers={layers}", f"--model.width={width}", f"--model.heads={width // 64}",
            f"--model.kv_heads={width // 64}", f"--model.ffn_width={width * 5 // 2}"]


def prepare_random_tokens(program, folder, num_bytes=1 << 20):
    """Random bytes as token files. Returns their prefix."""
    (folder / "text").write_bytes(os.urandom(num_bytes))
    checked([Path(program).resolve(), "data", "prepare", "--input", folder / "text", "--tokenizer", "bytes",
             "--validation-fraction", "0", "--output", folder / "tokens"])
    return folder / "tokens"


def add_arguments(parser):
    parser.add_argument("--trireme", default=ROOT / "build/release/bin/trireme", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")


def write_note(name, text):
    path = ROOT / "benchmarks" / "results" / name
    path.write_text(text)
    print(f"bench: wrote {path.relative_to(ROOT)}", file=sys.stderr)
