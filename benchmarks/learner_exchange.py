"""What one exchange of two learners does to a slow line: when each direction carries data, and how long all of it takes
beside the rate of the line.

`trireme network` makes two hosts of one rank; DiLoCo trains the demo's model on random bytes. A watcher in each host notes
the large packets that it sends and gets. An exchange is what comes without a pause of two seconds. Needs root and
/dev/net/tun. Prints a table; writes a note to benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trireme_runs import ROOT, add_arguments, prepare_random_tokens, write_note

NETWORK = """
[network]
hosts = ["one", "two"]
[default]
rate = {rate}
delay_ms = {delay}
"""
LARGE = 1000  # bytes of a packet with data; words between hosts and acknowledgements are shorter
PAUSE = 2  # seconds
OUTGOING = 4  # linux/if_packet.h
ALL_PROTOCOLS = 3


def watch(path):
    """Writes the time, direction and bytes of each large packet. Until it is killed."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PROTOCOLS))
    packets.bind(("trireme0", 0))
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    with Path(path).open("w", buffering=1) as output:
        while True:
            packet, (_, _, kind, *_) = packets.recvfrom(1 << 16)
            if len(packet) >= LARGE:
                output.write(f"{time.monotonic():.4f} {'sent' if kind == OUTGOING else 'got'} {len(packet)}\n")


def exchanges(folder):
    """Of each exchange: {direction: (first sent, last arrived, bytes)}."""
    events = []
    for host, other in (("0", "1"), ("1", "0")):
        for line in (folder / f"packets-{host}").read_text().splitlines():
            moment, what, size = line.split()
            events.append((float(moment), (host, other) if what == "sent" else (other, host), what, int(size)))
    found, last = [], -PAUSE
    for moment, direction, what, size in sorted(events):
        if moment - last >= PAUSE:
            found.append({})
        last = moment
        first, _, carried = found[-1].get(direction, (moment, moment, 0))
        found[-1][direction] = (first, moment, carried + (size if what == "got" else 0))
    return [each for each in found if len(each) == 2 and min(carried for _, _, carried in each.values()) > 1 << 20]


def figures(exchange, rate):
    begins, ends = ([times[i] for times in exchange.values()] for i in (0, 1))
    most = max(carried for _, _, carried in exchange.values())
    both = max(0.0, min(ends) - max(begins))
    return {"seconds": max(ends) - min(begins), "rate_seconds": 8 * most / rate, "apart_seconds": max(begins) - min(begins),
            "both_share": both / (max(ends) - min(begins))}


def main():
    if sys.argv[1:2] == ["--watch"]:
        watch(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rate", type=float, default=10e6, help="bits per second, each way")
    parser.add_argument("--delay", type=float, default=50, help="milliseconds, one way")
    parser.add_argument("--exchanges", type=int, default=5)
    parser.add_argument("options", nargs="*", help="for the run, after --")
    args = parser.parse_args()
    program, every = args.trireme.resolve(), 40
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wan.toml").write_text(NETWORK.format(rate=args.rate, delay=args.delay))
        command = [program, "run", "--nproc-per-node", 1, "--", program, "train", "examples/demo.toml",
                   f"--data.path={prepare_random_tokens(program, folder)}", f"--output.folder={folder}/run",
                   "--checkpoint.interval=0", "--train.evaluate_interval=0", "--threads", 1, "--parallel.learners=2",
                   f"--outer.every={every}", f"--train.steps={every * args.exchanges}", *args.options]
        script = f"{sys.executable} -B {__file__} --watch {folder}/packets-{{index}} & watcher=$!; \"$@\"; code=$?; kill $watcher; exit $code"
        result = subprocess.run([str(program), "network", str(folder / "wan.toml"), "--", "sh", "-c", script, "sh",
                                 *map(str, command)], cwd=ROOT, capture_output=True, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})
        if result.returncode != 0:
            sys.exit(f"the run failed:\n{result.stdout}{result.stderr}")
        rows = [figures(each, args.rate) for each in exchanges(folder)]
    if not rows:
        sys.exit("no exchange of a megabyte or more each way was seen")
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    text = (f"# An exchange of two learners over a slow line, {datetime.date.today()}\n\n{args.rate / 1e6:g} Mbit/s and "
            f"{2 * args.delay:g} ms round trip, one rank on each host, {' '.join(args.options) or 'fp32'}; load "
            f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} processors.\n\n"
            "| exchange | seconds | of its packets at the rate | ratio | directions begin apart | both at once |\n"
            "|---|---|---|---|---|---|\n")
    for number, row in enumerate(rows, 1):
        text += (f"| {number} | {row['seconds']:.2f} | {row['rate_seconds']:.2f} | {row['seconds'] / row['rate_seconds']:.2f} |"
                 f" {row['apart_seconds']:.2f} s | {row['both_share']:.0%} |\n")
    ratio = statistics.median(row["seconds"] / row["rate_seconds"] for row in rows)
    text += f"\nMedian ratio: {ratio:.2f}.\n"
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-learner-exchange.md", text)


if __name__ == "__main__":
    main()
