"""`trireme watch` on runs that are long, wide and many, through the real server.

- points: a million steps of ten metrics with one spike; the page cold, zooms, memory, and the spike at every zoom
- ranks: 1,024 ranks and 100,000 steps, as RUN/series has them; the map
- runs: 50 runs in a folder; their list
- connections: 10,000 connections to a server that may open 64 files, half-open ones and slow readers
- hostile: a metrics.jsonl that wants as much memory as it can get

With --tensorboard PYTHON the same points are read by TensorBoard from event files. Prints a table and writes a note to
benchmarks/results/.
"""

import argparse
import datetime
import json
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from trireme_runs import ROOT, add_arguments, write_note

METRICS = ("loss", "grad_norm", "learning_rate", "tokens_per_second", "step_seconds", "peak_rss_bytes", "data_seconds",
           "communication_fraction", "time")
SPIKE = 1000.0
CASES = ("points", "ranks", "runs", "connections", "hostile")


class Server:
    """A started `trireme watch`, and requests to it."""

    def __init__(self, program, *words, most_files=None):
        def limit():
            if most_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))

        self.begun = time.monotonic()
        self.process = subprocess.Popen([program, "watch", "--json", "--no-browser", "--port=0", *map(str, words)],
                                        stdout=subprocess.PIPE, text=True, preexec_fn=limit)
        line = json.loads(self.process.stdout.readline())
        self.port, self.token = line["port"], line["url"].split("token=")[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def bytes_of(self, path, patience=60):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                         headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=patience) as answer:
            return answer.read()

    def ask(self, path):
        """(seconds, answer)"""
        begin = time.monotonic()
        answer = json.loads(self.bytes_of(path))
        return time.monotonic() - begin, answer

    def memory(self, name="VmRSS"):
        """In MB: VmRSS now, VmHWM at the peak."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1000
        return 0.0

    def processor_seconds(self):
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / 100

    def page(self):
        """Seconds from the start of the program to everything that the page asks for first."""
        for path in ("/", "/app.js", "/app.css", "/api/runs", "/api/run?run=0", "/api/series?run=0&name=loss&points=800"):
            self.bytes_of(path)
        return time.monotonic() - self.begun

    def wait_for_rest(self):
        """Until it has nothing to read any more, which shows in its time on a processor."""
        spent = -1.0
        while (now := self.processor_seconds()) > spent + 0.03:
            spent = now
            time.sleep(2)

    def wait_for(self, step):
        """Seconds from the start of the program until it has read up to the step."""
        while self.ask("/api/runs")[1]["runs"][0]["step"] < step:
            time.sleep(0.05)
        return time.monotonic() - self.begun


def told(what, measured):
    """A row, which whoever waits sees at once."""
    print(f"{what}: {measured}", file=sys.stderr, flush=True)
    return what, measured


def write_points(folder, steps, spike):
    folder.mkdir()
    with open(folder / "metrics.jsonl", "w", encoding="ascii") as out:
        for step in range(1, steps + 1):
            values = {name: random.random() for name in METRICS}
            values.update(time=1.7e9 + step, loss=SPIKE if step == spike else values["loss"])
            out.write(json.dumps({"step": step, "epoch": 1, **values}) + "\n")


def zoom(server, steps, spike, rounds=60):
    """(median, largest seconds) of random zooms around the spike, which each of them has to show."""
    seconds, width = [], steps
    for _ in range(rounds):
        begin = max(1, spike - random.randrange(width))
        took, answer = server.ask(f"/api/series?run=0&name=loss&from={begin}&to={begin + width}&points=1000")
        series = answer["series"][0]
        if max(value for value in series["max"] if value is not None) != SPIKE or len(series["steps"]) > 1000:
            sys.exit(f"the spike at step {spike} is missing between {begin} and {begin + width}")
        seconds.append(took)
        width = max(2, width * 3 // 4)
    return statistics.median(seconds), max(seconds)


def measure_points(args, folder):
    spike = random.randrange(args.steps // 4, args.steps)
    write_points(folder / "points", args.steps, spike)
    with Server(args.trireme, folder / "points") as server:
        rows = [told("points: page, cold", f"{server.page():.2f} s")]
        rows.append(told("points: all read", f"{server.wait_for(args.steps):.1f} s"))
        rows.append(told("points: processor's time until then", f"{server.processor_seconds():.1f} s"))
        middle, most = zoom(server, args.steps, spike)
        rows.append(told("points: a zoom, median and largest", f"{1e3 * middle:.0f} and {1e3 * most:.0f} ms"))
        rows.append(told("points: RSS, and at its peak", f"{server.memory():.0f} and {server.memory('VmHWM'):.0f} MB"))
    return rows


def measure_ranks(args, folder):
    run = args.ranks_run or folder / "ranks"
    if not run.exists():
        subprocess.run([args.ranks_program, run, "1024", "100000"], check=True)
        write_points_of_ranks(run)
    megabytes = (run / "series" / "ranks.trs").stat().st_size / 1e6
    with Server(args.trireme, run) as server:
        rows = [told(f"ranks: file of {megabytes:.0f} MB: page, cold", f"{server.page():.2f} s")]
        while not (answer := server.ask("/api/ranks?run=0&column=own_seconds")[1])["values"]:
            time.sleep(0.01)
        rows.append(told("ranks: first map", f"{time.monotonic() - server.begun:.2f} s"))
        while answer["step"] < 100_000:
            time.sleep(0.05)
            answer = server.ask("/api/ranks?run=0&column=own_seconds")[1]
        rows.append(told("ranks: map of the last step", f"{time.monotonic() - server.begun:.2f} s"))
        server.wait_for_rest()
        rows.append(told("ranks: all read", f"{time.monotonic() - server.begun:.1f} s"))
        rows.append(told("ranks: processor's time until then", f"{server.processor_seconds():.1f} s"))
        seconds = [server.ask(f"/api/ranks?run=0&column=own_seconds&step={random.randrange(1, 100_001)}")[0]
                   for _ in range(60)]
        rows.append(told("ranks: a map, median and largest",
                     f"{1e3 * statistics.median(seconds):.0f} and {1e3 * max(seconds):.0f} ms"))
        for name in ("ranks/own_seconds", "rank/3/own_seconds"):
            rows.append(told(f"ranks: chart of {name}", f"{1e3 * server.ask(f'/api/series?run=0&name={name}&points=800')[0]:.0f} ms"))
        rows.append(told("ranks: waits", f"{1e3 * server.ask('/api/waits?run=0')[0]:.0f} ms"))
        took, answer = server.ask("/api/straggler?run=0&rank=3")
        if not answer["without"] < answer["step_seconds"] - 0.03:
            sys.exit(f"the slow rank is not seen: {answer}")
        rows.append(told("ranks: without the slow rank", f"{1e3 * took:.0f} ms"))
        rows.append(told("ranks: RSS, and at its peak", f"{server.memory():.0f} and {server.memory('VmHWM'):.0f} MB"))
    return rows


def write_points_of_ranks(run):
    with open(run / "metrics.jsonl", "w", encoding="ascii") as out:
        for step in range(1, 100_001):
            out.write(f'{{"step": {step}, "epoch": 1, "loss": {random.random()}, "time": {1.7e9 + step}}}\n')


def measure_runs(args, folder):
    (folder / "runs").mkdir()
    for run in range(50):
        write_points(folder / "runs" / f"run-{run:02}", 2000, 1000)
    with Server(args.trireme, folder / "runs") as server:
        rows = [told("50 runs: page, cold", f"{server.page():.2f} s")]
        while any(run["step"] < 2000 for run in server.ask("/api/runs")[1]["runs"]):
            time.sleep(0.01)
        rows.append(told("50 runs: all read", f"{time.monotonic() - server.begun:.2f} s"))
        seconds = [server.ask("/api/runs")[0] for _ in range(20)]
        rows.append(told("50 runs: the list, median and largest",
                     f"{1e3 * statistics.median(seconds):.0f} and {1e3 * max(seconds):.0f} ms"))
        rows.append(told("50 runs: RSS", f"{server.memory():.0f} MB"))
    return rows


def connect(port):
    client = socket.socket()
    client.settimeout(1)
    client.connect(("127.0.0.1", port))
    return client


def measure_connections(args, folder):
    write_points(folder / "small", 50_000, 100)
    rows = []
    with Server(args.trireme, folder / "small", most_files=64) as server:
        server.wait_for(50_000)
        held = []
        for count in range(args.connections):
            try:
                held.append(connect(server.port))
                if count % 2:
                    held[-1].send(b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # half a request
            except OSError:
                pass  # the kernel's queue is full
            if len(held) > 500:
                held.pop(0).close()
        begin, spent = time.monotonic(), server.processor_seconds()
        time.sleep(3)
        share = (server.processor_seconds() - spent) / (time.monotonic() - begin)
        rows.append(told(f"{args.connections} connections, 64 files: processor while 500 are held", f"{100 * share:.0f} %"))
        begin = time.monotonic()
        server.bytes_of("/api/runs")
        rows.append(told("connections: an answer beside them", f"{time.monotonic() - begin:.2f} s"))
        for client in held:
            client.close()
        rows.append(told("connections: an answer after them", f"{server.ask('/api/runs')[0]:.2f} s"))
    with Server(args.trireme, folder / "small") as server:
        server.wait_for(50_000)
        before = server.memory()
        readers = [connect(server.port) for _ in range(60)]
        for reader in readers:  # they ask for more than a socket holds, and take nothing
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.send((f"GET /api/series?run=0&name=loss&name=time&name=grad_norm&points=10000 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                         f"Authorization: Bearer {server.token}\r\n\r\n").encode())
        rows.append(told("60 slow readers: an answer beside them", f"{1e3 * server.ask('/api/runs')[0]:.0f} ms"))
        rows.append(told("60 slow readers: more RSS", f"{server.memory() - before:.0f} MB"))
        for reader in readers:
            reader.close()
    return rows


def write_hostile(path):
    """As many names and values as a server takes, each value behind a gap of 16 steps."""
    path.mkdir()
    bodies = ["".join(f', "name {first + i}": {i}' for i in range(8192)) for first in range(0, 1 << 17, 8192)]
    with open(path / "metrics.jsonl", "w", encoding="ascii") as out:
        for step in range(1, 4500):
            out.write(f'{{"step": {step}{bodies[step % len(bodies)]}}}\n')


def measure_hostile(args, folder):
    write_hostile(folder / "hostile")
    megabytes = (folder / "hostile" / "metrics.jsonl").stat().st_size / 1e6
    with Server(args.trireme, folder / "hostile") as server:
        server.wait_for_rest()
        return [told(f"hostile metrics.jsonl of {megabytes:.0f} MB: RSS at its peak", f"{server.memory('VmHWM'):.0f} MB")]


TENSORBOARD = """
import json, sys
from pathlib import Path
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[2], max_queue_size=1000, flush_secs=600)
for line in open(sys.argv[1]):
    row = json.loads(line)
    step = row.pop("step")
    values = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
    writer.add_event(event_pb2.Event(step=step, wall_time=row["time"], summary=summary_pb2.Summary(value=values)))
writer.close()
"""


def measure_tensorboard(args, folder):
    """TensorBoard on the points, with its defaults: it keeps 1,000 points drawn at random of each tag."""
    subprocess.run([args.tensorboard, "-c", TENSORBOARD, folder / "points" / "metrics.jsonl", folder / "events"], check=True)
    rows = []
    for kept in ("1000", "0"):
        begin = time.monotonic()
        process = subprocess.Popen([args.tensorboard, "-m", "tensorboard.main", "--logdir", folder / "events", "--port=0",
                                    "--load_fast=false", f"--samples_per_plugin=scalars={kept}", "--reload_interval=1"],
                                   stderr=subprocess.PIPE, text=True)
        try:
            port = next(word.rstrip("/").rsplit(":", 1)[1].split("/")[0] for line in process.stderr
                        for word in line.split() if word.startswith("http"))
            url = f"http://localhost:{port}/data/plugin/scalars/"
            rows.append(told(f"TensorBoard, {kept} samples: page", f"{page_of_tensorboard(port) - begin:.2f} s"))
            values = []
            while not values or values[-1][1] < args.steps * 0.999:
                try:
                    values = json.loads(urllib.request.urlopen(url + "scalars?run=.&tag=loss", timeout=300).read())
                except OSError:
                    pass
                if time.monotonic() - begin > args.patience:
                    break
                time.sleep(0.5)
            rows.append(told(f"TensorBoard, {kept} samples: all read", f"{time.monotonic() - begin:.0f} s"))
            begin = time.monotonic()
            values = json.loads(urllib.request.urlopen(url + "scalars?run=.&tag=loss", timeout=300).read())
            rows.append(told(f"TensorBoard, {kept} samples: a chart", f"{1e3 * (time.monotonic() - begin):.0f} ms"))
            rows.append(told(f"TensorBoard, {kept} samples: the spike is there", str(any(value[2] == SPIKE for value in values))))
            status = Path(f"/proc/{process.pid}/status").read_text()
            memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            rows.append(told(f"TensorBoard, {kept} samples: RSS", f"{memory / 1000:.0f} MB"))
        finally:
            process.terminate()
            process.wait()
            process.stderr.close()
    return rows


def page_of_tensorboard(port):
    while True:
        try:
            urllib.request.urlopen(f"http://localhost:{port}/", timeout=60).read()
            return time.monotonic()
        except OSError:
            time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--ranks-program", type=Path, default=ROOT / "build/release/bin/watch_ranks_benchmark")
    parser.add_argument("--patience", type=float, default=400, help="seconds that TensorBoard gets to read the points")
    parser.add_argument("--ranks-run", type=Path, help="a run of 1,024 ranks that is kept; written if it is not there")
    parser.add_argument("--tensorboard", metavar="PYTHON", help="a Python that has TensorBoard")
    args = parser.parse_args()
    random.seed(1)
    measures = {"points": measure_points, "ranks": measure_ranks, "runs": measure_runs, "connections": measure_connections,
                "hostile": measure_hostile}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for case in args.only:
            rows += measures[case](args, Path(name))
            if case == "points" and args.tensorboard:
                rows += measure_tensorboard(args, Path(name))
    if args.json:
        print(json.dumps(dict(rows), indent=2))
        return
    text = (f"# trireme watch at scale, {datetime.date.today()}\n\nPoints: {args.steps} steps of {len(METRICS) + 1} metrics and "
            "an epoch.\n\n| what | measured |\n|---|---|\n")
    text += "".join(f"| {what} | {measured} |\n" for what, measured in rows)
    print(text)
    if not args.no_note:
        write_note(f"{datetime.date.today()}-watch-scale.md", text)


if __name__ == "__main__":
    main()
