"""Share of a step spent waiting for data: from a disk, from an object store, and with a cache that is cold or warm.

A store of S3's kind on loopback (tests/cli/store_server.py), in a process of its own, answers each request after a pause as
that of a near store. One rank trains a small Llama; the four cases alternate. Prints a table of medians and checks that the
losses are the same; writes a note to benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from trireme_runs import ROOT, SMALL_LLAMA, add_arguments, prepare_random_tokens, shape, train, write_note

SERVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
import store_server
pause = float(sys.argv[3]) / 1000
server = store_server.StoreServer(sys.argv[2], fault=lambda number: time.sleep(pause))
print(server.port, flush=True)
sys.stdin.read()
"""
CASES = ("disk", "store", "cold cache", "warm cache")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--milliseconds", type=float, default=10, help="pause before each answer")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--megabytes", type=int, default=16, help="of tokens")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare_random_tokens(args.trireme, folder, args.megabytes << 19)  # two bytes a token
        (folder / "config.toml").write_text(SMALL_LLAMA)
        server = subprocess.Popen([sys.executable, "-B", "-c", SERVER, ROOT / "tests/cli", folder, str(args.milliseconds)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        os.environ.update({"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}", "AWS_REGION": "eu-test-1",
                           "AWS_ACCESS_KEY_ID": "TESTKEY", "AWS_SECRET_ACCESS_KEY": "secret/of+tests", "OMP_NUM_THREADS": "1"})
        shares, losses, step = {case: [] for case in CASES}, {}, []
        for _ in range(args.rounds):
            shutil.rmtree(folder / "cache", ignore_errors=True)
            for case in CASES:
                options = [f"--data.path={folder / 'tokens' if case == 'disk' else 's3://data/tokens'}", "--ranks=1",
                           f"--train.steps={args.steps}", "--train.global_batch=8", "--train.micro_batch=4",
                           "--model.sequence_length=256", *shape(4, 256)]
                if "cache" in case:
                    options.append(f"--data.cache={folder / 'cache'}")
                shutil.rmtree(folder / "run", ignore_errors=True)
                steps = train(args.trireme.resolve(), folder / "config.toml", folder / "run", *options)[2:]
                seconds = sum(each["step_seconds"] for each in steps)
                shares[case].append(sum(each["data_seconds"] for each in steps) / seconds)
                step.append(seconds / len(steps))
                losses.setdefault(case, [each["loss"] for each in steps])
        server.stdin.close()
        server.wait()
    if any(curve != losses["disk"] for curve in losses.values()):
        sys.exit("the losses differ")
    medians = {case: statistics.median(values) for case, values in shares.items()}
    if args.json:
        print(json.dumps(medians, indent=2))
        return
    text = (f"# Waiting for data in an object store, {datetime.date.today()}\n\nA store on loopback that answers after "
            f"{args.milliseconds:g} ms; steps of {statistics.median(step):.2f} s on one thread; medians of {args.rounds} "
            f"alternating rounds of {args.steps} steps, without the first two. The losses are the same.\n\n"
            "| data | share of a step, % |\n|---|---|\n")
    text += "".join(f"| {case} | {100 * share:.2f} |\n" for case, share in medians.items())
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-stores.md", text)


if __name__ == "__main__":
    main()
