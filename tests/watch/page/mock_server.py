"""The JSON routes of `trireme watch` with drawn runs, to look at its page without a run:
python3 tests/watch/page/mock_server.py, or its answers as the data of one file (`answers_of`).

Runs: healthy, straggler, crash, experts, thousand (1,024 ranks), hostile (names that would break a
careless page), long (10^7 steps with a spike of one step), empty (nothing is recorded yet).
"""

import json
import math
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PAGE = Path(__file__).resolve().parents[3] / "trireme" / "watch" / "page"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}
START = 1764480000.0
EVIL = "</script><img src=x onerror=alert(1)>\u001b[31m\u202e<b>"
DIED = ("rank 3 died: process 4242 on b is gone, last seen 2025-11-30 05:21:42 UTC; its last call, reduce_scatter #9383 of group tensor, ended 0.93 s ago; "
        "ranks 0, 1, 2, 4, 5, 6 and 7 had waited in all_reduce #9384 of group data since 2025-11-30 05:21:42 UTC")
KINDS = ("weights", "gradients", "states", "activations", "gathered", "buckets", "other")


def noise(*key):
    """In [0, 1), the same for the same key on every machine."""
    value = 2166136261
    for part in repr(key).encode():
        value = (value ^ part) * 16777619 & 0xFFFFFFFF
    value ^= value >> 15
    return (value * 2246822519 & 0xFFFFFFFF) / 2**32


class Run:
    def __init__(self, name, axes, steps, last, state="running", why="", slow=None, experts=0, spike=None, tail=""):
        self.name, self.axes, self.steps, self.last, self.state, self.why = name, axes, steps, last, state, why
        self.slow, self.experts, self.spike, self.tail = slow, experts, spike, tail
        self.ranks = math.prod(size for _, size in axes)

    def coordinates(self):
        places = []
        for rank in range(self.ranks):
            place = []
            for _, size in reversed(self.axes):
                place.insert(0, rank % size)
                rank //= size
            places.append(place)
        return places

    def is_slow(self, rank, step):
        return self.slow is not None and rank == self.slow and step > self.last * 0.4

    def own(self, rank, step):
        return (0.1 + 0.004 * noise(self.name, rank, step)) * (1.9 if self.is_slow(rank, step) else 1)

    def step_seconds(self, step):
        slowest = self.own(self.slow if self.slow is not None else 0, step)
        return slowest + 0.02 + 0.004 * noise("step", step)

    def column(self, column, rank, step):
        if column == "own_seconds":
            return self.own(rank, step)
        if column == "step_seconds":
            return self.step_seconds(step)
        if column.startswith("communication_seconds/"):
            axis = column.split("/")[1]
            share = {"data": 0.3, "tensor": 0.5, "pipeline": 0.6, "expert": 0.4}.get(axis, 0.1)
            wait = self.step_seconds(step) - self.own(rank, step)
            return wait * share * (0.8 + 0.4 * noise(axis, rank, step))
        if column.startswith("memory_bytes/"):
            kind = KINDS.index(column.split("/")[1])
            return (600, 300, 1200, 900, 0, 120, 60)[kind] * 2**20 * (0.95 + 0.1 * noise(kind, rank))
        return {"tokens": 8192, "temperature": 61 + 8 * noise("t", rank, step)}.get(column, 0.004 * noise(column, rank, step))

    def columns(self):
        return (["step_seconds", "own_seconds", "data_seconds", "wait_seconds", "tokens"]
                + [f"communication_seconds/{name}" for name, _ in self.axes]
                + [f"memory_bytes/{kind}" for kind in KINDS] + ["temperature"])

    def time(self, step):
        return START + 4 + step * 0.125 + (9 if step > self.last * 0.6 else 0)

    def value(self, name, step):
        if name.startswith("rank/"):
            _, rank, column = name.split("/", 2)
            return self.column(column, int(rank), step)
        if name == "time":
            return self.time(step)
        if name == "step_seconds":
            return self.step_seconds(step)
        if name == "tokens_per_second":
            return 8192 * self.ranks / self.step_seconds(step)
        if name.startswith("memory_"):
            return self.column(f"memory_bytes/{name[7:-6]}", 0, step)
        if name == "learning_rate":
            return 1e-3 * min(1, step / 50)
        if name == "loss" and step == self.spike:
            return 40.0
        fall = math.exp(-5 * step / self.steps)
        return 2.1 + 2.4 * fall + 0.15 * (noise(name, self.name, step) - 0.5)

    def series(self, name, first, to, points):
        buckets = {key: [] for key in ("steps", "min", "max", "mean")}
        count = min(points, to - first + 1)
        for index in range(count):
            begin = first + index * (to - first + 1) // count
            end = max(begin + 1, first + (index + 1) * (to - first + 1) // count)
            steps = list(range(begin, end, max(1, (end - begin) // 8)))
            if self.spike and begin <= self.spike < end:
                steps.append(self.spike)
            if name.startswith("ranks/"):
                drawn = range(0, self.ranks, max(1, self.ranks // 16))
                values = [self.column(name[6:], rank, steps[0]) for rank in drawn]
            else:
                values = [self.value(name, step) for step in steps]
            for key, value in zip(buckets, (begin, min(values), max(values), sum(values) / len(values))):
                buckets[key].append(value)
        unit = "s" if "seconds" in name else "bytes" if "bytes" in name else ""
        return {"name": name, "unit": unit, "from": first, "to": to, "count": to - first + 1, **buckets}


RUNS = [
    Run("healthy", [("data", 2), ("tensor", 2)], 2000, 1240),
    Run("straggler", [("pipeline", 2), ("data", 4)], 1500, 1100, slow=5),
    Run("crash", [("data", 4), ("tensor", 2)], 1000, 712, "crashed", f"the job ended: killed; step 712 of 1000; {DIED}"),
    Run("experts", [("data", 2), ("expert", 4)], 800, 800, "finished", experts=16),
    Run("thousand", [("pipeline", 8), ("data", 16), ("tensor", 8)], 100000, 98000, slow=517),
    Run(f"hostile {EVIL}", [(f"data{EVIL}", 3)], 50, 20, "stopped", EVIL, tail=EVIL),
    Run("long", [("data", 1)], 10_000_000, 10_000_000, "finished", spike=7_654_321),
    Run("empty", [("data", 1)], 10, 0, "unknown"),
]


def row_of(index):
    run = RUNS[index]
    if run.name == "empty":
        return {"run": index, "name": "empty", "folder": "runs/empty", "state": "unknown", "why": "", "step": None, "steps": None, "loss": None,
                "units_per_second": None, "unit": "", "time": None, "seconds": None}
    return {"run": index, "name": run.name, "folder": f"runs/{run.name}", "state": run.state, "why": run.why, "step": run.last,
            "steps": run.steps, "loss": run.value("loss", run.last), "units_per_second": run.value("tokens_per_second", run.last),
            "unit": "tokens", "time": run.time(run.last), "seconds": run.time(run.last) - START}


def spans_of(run):
    middle, end = run.time(run.last * 0.6), run.time(run.last)
    spans = [(START, START + 4, "starting"), (START + 4, middle, "training"), (middle, middle + 9, "restarting"), (middle + 9, end, "training")]
    return [{"from": begin, "to": to, "cause": cause} for begin, to, cause in spans]


def about(run, query):
    words = {"running": f"The run goes on: step {run.last} of {run.steps}", "finished": f"The run is finished: all {run.steps} steps are made",
             "crashed": f"The run has crashed: the job ended: killed; step {run.last} of {run.steps}; {DIED}", "stopped": f"The run has ended before its last step: {run.why}"}
    share, speed = 1 - 13 / (run.time(run.last) - START), run.value("tokens_per_second", run.last)
    summary = (f"{words.get(run.state, '')}. The loss went from {run.value('loss', 1):.4g} to {run.value('loss', run.last):.4g}. It processed {speed:.0f} tokens "
               "a second in its last step." + (f" Rank {run.slow} computes 1.91 times as long as the median of its peers." if run.slow is not None else "") +
               f" {100 * share:.1f} % of its time was training.")
    alerts = [{"time": run.time(run.last * 0.4 + 5), "step": int(run.last * 0.4) + 6, "kind": "slow",
               "text": f"tokens_per_second is {speed:.0f} for 5 steps, 57 % of its median of {speed / 0.57:.0f}{run.tail}"}]
    scalars = ["loss", "grad_norm", "learning_rate", "tokens_per_second", "step_seconds", *(f"memory_{kind}_bytes" for kind in KINDS), "time"]
    predicted = {"step_seconds": 0.118, "tokens_per_second": 8192 * run.ranks / 0.118, **{f"memory_{kind}_bytes": run.column(f"memory_bytes/{kind}", 0, 1) * 0.9 for kind in KINDS}}
    scalars += [f"expert_max_violation/{block}" for block in range(4 if run.experts else 0)] + ([EVIL] if run.tail else [])
    crash = {"rank": "Rank 3 was killed by signal 9 (Killed, by someone or for lack of memory). It was process 4242 on host b.",
             "call": "Rank 3 was in step 713, between two calls: reduce_scatter #9383 of group tensor had ended. Ranks 0-2 and 4-7 "
                     "waited for it in all_reduce #9384 of group data.",
             "lost": "Steps 701 to 712, 1.5 s of training. The newest checkpoint is of step 700; the same command goes on from there."}
    return {"name": run.name, "state": run.state, "why": run.why, "crash": crash if run.state == "crashed" else None,
            "config": f"[run]\nname = \"{run.name}\"\n[optimizer]\nlearning_rate = 1e-3\n",
            "version": "0.4.0", "ranks": run.ranks, "axes": [{"name": name, "size": size} for name, size in run.axes],
            "coordinates": run.coordinates(), "first_step": 1, "last_step": run.last, "steps": run.steps,
            "scalars": [{"name": name, "unit": "", "meaning": f"drawn{run.tail}"} for name in scalars], "rank_columns": run.columns(),
            "goodput": {"share": share, "spans": spans_of(run)},
            "alerts": alerts if run.slow is not None or run.tail else [],
            "findings": [{"text": DIED, "ranks": [3]}] if run.state == "crashed" else [],
            "predicted": predicted, "checkpoints": [{"step": step, "time": run.time(step)} for step in range(100, min(run.last, 5000), 100)],
            "summary": summary}


def ranks(run, query):
    step = min(int(float(query.get("step", run.last))), run.last)
    values = [run.column(query["column"], rank, step) for rank in range(run.ranks)]
    pipeline = next((axis for axis, (name, _) in enumerate(run.axes) if name == "pipeline"), None)
    stages = [place[pipeline] if pipeline is not None else 0 for place in run.coordinates()]
    medians = {stage: sorted(value for value, other in zip(values, stages) if other == stage) for stage in set(stages)}
    return {"step": step, "values": values, "median_by_stage": [medians[stage][len(medians[stage]) // 2] for stage in stages]}


def waits(run, query):
    entries = []
    for axis, _ in run.axes:
        for waiter in range(run.ranks):
            for hop in range(1, min(run.ranks, 4)):
                awaited = run.slow if run.slow is not None and hop == 1 else (waiter + hop) % run.ranks
                if awaited != waiter:
                    weight = 60 if awaited == run.slow else 3
                    entries.append({"axis": axis, "waiter": waiter, "awaited": awaited, "seconds": weight * noise(axis, waiter, awaited)})
    return {"axes": [axis for axis, _ in run.axes], "ranks": run.ranks, "entries": entries[:4096]}


def experts(run, query):
    step = int(float(query.get("step", run.last)))
    lists = [{"name": f"expert_tokens/{block}", "values": [int(3000 * noise(block, expert, step // 50) ** 2) for expert in range(run.experts)]}
             for block in range(4 if run.experts else 0)]
    return {"step": step, "lists": lists}


def straggler(run, query):
    rank, measured = int(query["rank"]), run.step_seconds(run.last)
    without = 0.124 if rank == run.slow else measured
    return {"rank": rank, "step_seconds": measured, "without": without, "unit": "tokens", "units_per_second": 8192 * run.ranks / measured,
            "without_units_per_second": 8192 * run.ranks / without, "how": "each step minus the slowest rank's own seconds, plus the slowest rank's own seconds with this rank at the median of the "
            "others in its pipeline stage; the median over the last steps"}


def events(run, query):
    every = [(-4, "start", f"epoch 1: {run.ranks} ranks; trireme 0.4.0"), (1, "recovery", "step 1 is finished"),
             (run.last * 0.6, "failure", "rank 2 was killed by signal 9 (Killed, by someone or for lack of memory)"),
             (run.last * 0.6 + 1, "start", f"epoch 2: {run.ranks} ranks; goes on from step {int(run.last * 0.6)}; trireme 0.4.0"),
             (run.last // 100 * 100, "notice", f"checkpoint step-{run.last // 100 * 100:06} is saved{run.tail}")]
    if run.state == "crashed":
        every += [(run.last, kind, "rank 3 was killed by signal 9 (Killed, by someone or for lack of memory)") for kind in ("failure", "end")]
    return {"events": [{"time": run.time(step), "epoch": 0, "step": int(max(step, 0)), "event": name, "host": "a", "rank": None, "text": text}
                       for step, name, text in every]}


def log(run, query):
    lines = [{"time": run.time(step), "step": step, "epoch": 0, "text": f"step {step} loss {run.value('loss', step):.4f}{run.tail}"}
             for step in range(max(1, run.last - 30), run.last + 1)]
    return {"lines": lines}


def calls(run, query):
    dead = 3 if run.state == "crashed" else None
    every, end = [], run.time(run.last)
    for rank in range(run.ranks):
        made = []
        for sequence in range(400):
            begin = end - 20 + sequence * 0.05 + 0.004 * noise(rank, sequence)
            name = ("all_reduce", "all_gather", "reduce_scatter")[sequence % 3]
            is_last = sequence == (383 if rank == dead else 384 if dead is not None else 399)
            made.append({"sequence": sequence + 9000, "name": name + run.tail, "group": run.axes[sequence % len(run.axes)][0], "begin": begin,
                         "end": None if is_last and dead not in (None, rank) else begin + 0.03 + 0.01 * noise(sequence, rank), "bytes": 1 << 20})
            if is_last:
                break
        every.append({"rank": rank, "calls": made})
    found = [{"time": end - 0.8, "text": DIED, "ranks": [3]}] if dead is not None else []
    return {"ranks": every, "findings": found}


def trace(run, query):
    spans = [{"ph": "X", "pid": rank, "tid": 1, "ts": 1e5 * step + 3e4 * part, "dur": 2.5e4 / (1 + part % 2), "name": name + run.tail}
             for rank in range(min(run.ranks, 8)) for step in range(3) for part, name in enumerate(("forward", "backward", "optimizer"))]
    inner = [{**span, "ts": span["ts"] + 1e3, "dur": 6e3, "name": "aten::mm"} for span in spans]
    return {"traceEvents": [{"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}} for rank in range(8)] + spans + inner}


def compare(run, query):
    count = len(query["runs"].split(","))
    return {"runs": [int(each) for each in query["runs"].split(",")], "differences": [
        {"key": "optimizer.learning_rate", "values": [f"{each + 1}e-3" for each in range(count)]},
        {"key": "parallel.tensor", "values": [str(2 - each % 2) for each in range(count)]}]}


def memory(run, query):
    return {"step": 12, "rank": 0, "total_bytes": 3 * 2**30, "largest": [
        {"bytes": 2**28, "kind": "activations", "operator": "aten::mm", "unit": f"block 3{run.tail}"}]}


def series(run, query):
    first, to = int(float(query.get("from", 1))), int(float(query.get("to", run.last)))
    first = max(1, min(first, run.last))
    return {"series": [run.series(name, first, max(first, min(to, run.last)), min(int(query.get("points", 800)), 2000))
                       for name in query["names"]]}


EMPTY = {
    "run": {"name": "empty", "state": "unknown", "why": "", "config": "", "version": "", "ranks": 0, "axes": [], "coordinates": [], "first_step": None,
            "last_step": None, "steps": None, "scalars": [], "rank_columns": [], "goodput": {"share": None, "spans": []}, "alerts": [], "findings": [],
            "predicted": None, "checkpoints": [], "summary": "Nothing says whether the run lives."},
    "ranks": {"step": None, "values": [], "median_by_stage": []}, "waits": {"axes": [], "ranks": 0, "entries": []},
    "experts": {"step": None, "lists": []}, "events": {"events": []}, "log": {"lines": []}, "calls": {"ranks": [], "findings": []},
    "profile": {"files": []}, "memory": {}}

ROUTES = {"run": about, "ranks": ranks, "waits": waits, "experts": experts, "straggler": straggler, "events": events, "log": log,
          "calls": calls, "trace": trace, "compare": compare, "memory": memory, "series": series,
          "runs": lambda run, query: {"runs": [row_of(index) for index in range(len(RUNS))]},
          "profile": lambda run, query: {"files": [{"name": "trace.json", "url": f"/api/trace?run={RUNS.index(run)}&name=trace.json"}]}}


def answer(path, query):
    route = ROUTES.get(path.removeprefix("/api/"))
    run = int(query.get("run", ["0"])[0])
    if route is None or not 0 <= run < len(RUNS):
        return 404, {"error": f"{path} is not there"}
    names = query.get("name", [])
    if RUNS[run].name == "empty" and path.startswith("/api/series"):
        return 200, {"series": [{"name": name, "unit": "", "from": 0, "to": None, "count": 0, "steps": [], "min": [], "max": [], "mean": []} for name in names]}
    if RUNS[run].name == "empty" and path.removeprefix("/api/") in EMPTY:
        return 200, EMPTY[path.removeprefix("/api/")]
    return 200, route(RUNS[run], {**{key: values[0] for key, values in query.items()}, "names": names})


def answers_of(run):
    """The data of one file with the run `run` alone, with the keys of `trireme watch --html`."""
    only = {"runs": [{**row_of(run), "run": 0}]}
    found = {"/api/runs": only}
    asked = ["run", "waits", "experts", "events", "calls", "memory", "profile", "log"]
    for name in asked:
        found[f"/api/{name}?run=0"] = answer(f"/api/{name}", {"run": [str(run)]})[1]
    for scalar in found["/api/run?run=0"]["scalars"]:
        found[f"/api/series?run=0&name={scalar['name']}"] = answer("/api/series", {"run": [str(run)], "name": [scalar["name"]]})[1]
    for column in found["/api/run?run=0"]["rank_columns"]:
        found[f"/api/series?run=0&name=ranks/{column}"] = answer("/api/series", {"run": [str(run)], "name": [f"ranks/{column}"]})[1]
        steps = range(1, RUNS[run].last + 1, max(1, RUNS[run].last // 20))
        found[f"/api/ranks?run=0&column={column}"] = [answer("/api/ranks", {"run": [str(run)], "column": [column], "step": [str(step)]})[1] for step in steps]
    for rank in range(RUNS[run].ranks):
        found[f"/api/straggler?run=0&rank={rank}"] = answer("/api/straggler", {"run": [str(run)], "rank": [str(rank)]})[1]
    return found


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        parts = urlsplit(self.path)
        file = PAGE / (parts.path.lstrip("/") or "index.html")
        if parts.path.startswith("/api/"):
            status, found = answer(parts.path, parse_qs(parts.query))
            self.reply(status, "application/json", json.dumps(found).encode())
        elif file.parent == PAGE and file.suffix in TYPES and file.is_file():
            self.reply(200, TYPES[file.suffix], file.read_bytes())
        else:
            self.reply(404, "application/json", b'{"error":"not found"}')

    def reply(self, status, kind, body):
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), ("Content-Security-Policy", POLICY),
                            ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a browser may close before it has read all
            super().handle_error(request, client_address)


def serve(port=0):
    return Server(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    server = serve(int(sys.argv[1]) if len(sys.argv) > 1 else 7118)
    print(f"http://127.0.0.1:{server.server_address[1]}/", flush=True)
    server.serve_forever()
