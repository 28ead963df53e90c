"""Preparation of rows beside `datasets`: MB/s of text from JSON lines and Parquet, on one core, alternating in one run.

Rows are pieces of Python's standard library with the other members of web pages. `trireme data prepare` reads them, makes
tokens of their bytes and writes token files; `datasets` in streaming mode only hands each row to Python. Both are bound to
one core. The other python needs `datasets` and pyarrow. Prints a table of medians; writes a note to benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from trireme_runs import add_arguments, write_note

WRITE = """
import json, sys
import pyarrow, pyarrow.json, pyarrow.parquet
table = pyarrow.json.read_json(sys.argv[1])
pyarrow.parquet.write_table(table, sys.argv[2], row_group_size=10000, compression="snappy")
"""
PEER = """
import json, os, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
import datasets
import pyarrow
pyarrow.set_cpu_count(1)
pyarrow.set_io_thread_count(1)
start = time.perf_counter()
rows = datasets.load_dataset(sys.argv[1], data_files=sys.argv[2], split="train", streaming=True)
count = sum(len(row["text"]) for row in rows.select_columns(["text"]))
print(json.dumps({"seconds": time.perf_counter() - start, "characters": count, "version": datasets.__version__}))
"""


def write_rows(path, megabytes):
    draw = random.Random(1)
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = [file.read_text(errors="ignore") for file in sorted(library.rglob("*.py"))[:600]]
    count = size = characters = 0
    with open(path, "w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            source = draw.choice(sources)
            begin = draw.randrange(max(1, len(source) - 3000))
            text = source[begin:begin + draw.randrange(500, 5000)]
            file.write(json.dumps({"text": text, "id": f"<urn:uuid:{count}>", "url": f"https://example.org/{count}",
                                   "date": "2020-01-01T00:00:00Z", "language": "en", "language_score": 0.98,
                                   "token_count": len(text) // 4}) + "\n")
            count += 1
            size += len(text.encode())
            characters += len(text)
    return size, characters


def on_one_core(command, **options):
    result = subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), *map(str, command)], capture_output=True,
                            text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return json.loads(result.stdout[result.stdout.index("{"):])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the one that has datasets")
    parser.add_argument("--megabytes", type=int, default=200, help="of text")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, parquet = folder / "rows.jsonl", folder / "rows.parquet"
        size, characters = write_rows(lines, args.megabytes)
        subprocess.run([args.python, "-c", WRITE, lines, parquet], check=True)
        seconds = {}
        for _ in range(args.rounds):
            for form, file, loader in (("json-lines", lines, "json"), ("parquet", parquet, "parquet")):
                shutil.rmtree(folder / "out", ignore_errors=True)  # replacing files costs time that the peer has not
                ours = on_one_core([args.trireme.resolve(), "data", "prepare", "--format", form, "--input", file, "--threads",
                                    1, "--validation", 0, "--output", folder / "out/x", "--json"])
                theirs = on_one_core([args.python, "-c", PEER, loader, file], cwd=folder)
                if ours["text_bytes"] != size or theirs["characters"] != characters:
                    sys.exit(f"not the text that was written: {ours} {theirs}")
                seconds.setdefault((form, "trireme"), []).append(ours["seconds"])
                seconds.setdefault((form, "datasets"), []).append(theirs["seconds"])
    rates = {f"{form} {program}": size / 1e6 / statistics.median(times) for (form, program), times in seconds.items()}
    if args.json:
        print(json.dumps(rates, indent=2))
        return
    text = (f"# Preparation of rows beside datasets {theirs['version']}, {datetime.date.today()}\n\n{size / 1e6:.0f} MB of "
            f"text; one core; medians of {args.rounds} alternating rounds.\n\n| rows | trireme, to tokens, MB/s | datasets, "
            "rows only, MB/s | ratio |\n|---|---|---|---|\n")
    for form in ("json-lines", "parquet"):
        ours, theirs = rates[f"{form} trireme"], rates[f"{form} datasets"]
        text += f"| {form} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} |\n"
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-prepare.md", text)


if __name__ == "__main__":
    main()
