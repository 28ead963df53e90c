"""Shared by the benchmarks that run `trireme train`."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def checked(command):
    """Runs it in the repository's root. If it fails, shows its output and ends the benchmark."""
    result = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")


def train(program, config, folder, *options):
    """The steps of a new run, as in its metrics.jsonl."""
    checked([program, "train", config, f"--output.folder={folder}", "--checkpoint.interval=0", *options])
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def add_arguments(parser):
    parser.add_argument("--trireme", default=ROOT / "build/release/bin/trireme", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-note", action="store_true", help="write no note to benchmarks/results/")


def write_note(name, text):
    path = ROOT / "benchmarks" / "results" / name
    path.write_text(text)
    print(f"bench: wrote {path.relative_to(ROOT)}", file=sys.stderr)
