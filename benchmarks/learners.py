"""Learners over a slow network: tokens/s and bytes on the wire of two hosts, beside data parallelism and no network at all.

`trireme network` makes the hosts, 10 Mbit/s and a round trip of 100 ms apart. Each has one rank with one thread that trains
the demo's model on bytes. The cases alternate; tokens/s are over whole rounds. Bytes per step are the difference of two
runs of different lengths, by the link's counter, so that the start of a run does not count. `without headers` has the
payload of TCP alone, without what two idle hosts send each other in that time (they watch each other): it is what
`outer_bytes` counts. Needs root and /dev/net/tun. Prints a table of medians; writes a note to benchmarks/results/.
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

from trireme_runs import ROOT, add_arguments, prepare_random_tokens, write_note

NETWORK = """
[network]
hosts = ["one", "two"]
[default]
rate = {rate}
delay_ms = {delay}
"""
STREAMING = ["--parallel.learners=2", "--outer.every=100", "--outer.fragments=4", "--outer.delay=20", "--outer.mix=0.5"]
# Options, then steps of the shorter and of the longer run.
CASES = {
    "data parallelism": ([], 3, 6),
    "data parallelism, int8": (["--train.compression=int8"], 3, 7),
    "DiLoCo, H = 100": (["--parallel.learners=2", "--outer.every=100"], 201, 301),
    "DiLoCo, H = 100, int8": (["--parallel.learners=2", "--outer.every=100", "--outer.wire=int8"], 201, 301),
    "streaming, H = 100, int4": ([*STREAMING, "--outer.wire=int4"], 201, 301),
}
# IPv4, TCP and its timestamps, in every packet, acknowledgements too.
HEADER_BYTES = 20 + 20 + 12
IDLE_SECONDS = (5, 25)
ALONE = "streaming, H = 100, int4, without a network"


def run(command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT,
                            env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def tokens_per_second(folder, tokens, steps):
    """From the end of the first step to that of the last but one: the last makes learners equal, which no other does."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][:steps - 1]
    return tokens * (len(lines) - 1) / (lines[-1]["time"] - lines[0]["time"])


def payload(links):
    return sum(link["bytes"] - HEADER_BYTES * link["packets"] for link in links)


def links_of(output):
    return json.loads(output[output.index("{"):])["links"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rate", type=float, default=10e6, help="bits per second, each way")
    parser.add_argument("--delay", type=float, default=50, help="milliseconds, one way")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    program = args.trireme.resolve()
    rates, sent, payloads = {}, {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepare_random_tokens(program, folder)
        (folder / "wan.toml").write_text(NETWORK.format(rate=args.rate, delay=args.delay))
        common = ["examples/demo.toml", f"--data.path={data}", "--checkpoint.interval=0", "--train.evaluate_interval=0",
                  "--threads", 1]

        def idle_payload(seconds):
            return payload(links_of(run([program, "network", folder / "wan.toml", "--json", "--", program, "run",
                                         "--nproc-per-node", 1, "--", "sleep", seconds])))

        idle = (idle_payload(IDLE_SECONDS[1]) - idle_payload(IDLE_SECONDS[0])) / (IDLE_SECONDS[1] - IDLE_SECONDS[0])

        def train(case, steps, options, alone=False):
            target = folder / f"{len(list(folder.iterdir()))}"
            train_command = [program, "train", *common, f"--output.folder={target}", f"--train.steps={steps}", *options]
            if alone:
                run([*train_command, "--ranks", 2])
            else:
                report = run([program, "network", folder / "wan.toml", "--json", "--", program, "run", "--nproc-per-node", 1, "--",
                              *train_command])
                links = links_of(report)
                sent.setdefault(case, {}).setdefault(steps, []).append(sum(link["bytes"] for link in links))
                lines = [json.loads(line) for line in (target / "metrics.jsonl").read_text().splitlines()]
                seconds = lines[-1]["time"] - lines[0]["time"]
                payloads.setdefault(case, {}).setdefault(steps, []).append(payload(links) - idle * seconds)
            rates.setdefault(case, []).append(tokens_per_second(target, 16 * 128, steps))
            return target

        for _ in range(args.rounds):
            for case, (options, short, long) in CASES.items():
                for steps in (short, long):
                    last = train(case, steps, options)
                    lines = [json.loads(line) for line in (last / "metrics.jsonl").read_text().splitlines()]
                    told = [line["outer_bytes"] for line in lines[:-1] if "outer_bytes" in line]
                    if told:
                        sent[case]["told"] = sum(told) / (len(lines) - 1)
            train(ALONE, 301, CASES["streaming, H = 100, int4"][0], alone=True)
    rows = {case: {"tokens_per_second": statistics.median(each)} for case, each in rates.items()}
    for case, (_, short, long) in CASES.items():
        per_step = (statistics.median(sent[case][long]) - statistics.median(sent[case][short])) / (long - short) / 2
        of_payload = payloads[case]
        rows[case] |= {"bytes_per_step": per_step, "told_bytes_per_step": sent[case].get("told"),
                       "payload_per_step": (statistics.median(of_payload[long]) - statistics.median(of_payload[short]))
                       / (long - short) / 2}
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    base = rows["data parallelism"]
    text = (f"# Learners over a slow network, {datetime.date.today()}\n\n{args.rate / 1e6:g} Mbit/s and {2 * args.delay:g} ms round "
            f"trip between two hosts of one rank each; the demo's model on bytes; rounds: {args.rounds}.\n\n"
            "| | tokens/s | of data parallelism | bytes per step and host | without headers | by `outer_bytes` | fewer bytes |\n"
            "|---|---|---|---|---|---|---|\n")
    for case, row in rows.items():
        text += f"| {case} | {row['tokens_per_second']:,.0f} | {row['tokens_per_second'] / base['tokens_per_second']:.1f} x |"
        if "bytes_per_step" in row:
            told = row["told_bytes_per_step"]
            text += f" {row['bytes_per_step']:,.0f} | {row['payload_per_step']:,.0f} | {f'{told:,.0f}' if told else ''} |"
            text += f" {base['bytes_per_step'] / row['bytes_per_step']:,.0f} x |\n"
        else:
            text += " | | | |\n"
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-learners.md", text)


if __name__ == "__main__":
    main()
