"""A small MLflow server in this process, by its REST interface 2.0, which can fail as a test decides."""
import http.server
import json
import threading
import time
import urllib.parse


class MlflowServer:
    """runs: by id, what was sent. statuses: all that came, in order. fault: called with each request's number; None, a status, "garbage" or seconds."""

    def __init__(self, fault=None):
        self.runs, self.experiments, self.headers, self.statuses, self.count = {}, {}, [], [], 0
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.reply({})

            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}"))

            def reply(self, body):
                with outer.lock:
                    outer.count += 1
                    outer.headers.append(dict(self.headers))
                    wrong = fault(outer.count) if fault else None
                status, answer = 200, None
                if isinstance(wrong, float):
                    time.sleep(wrong)
                elif wrong == "garbage":
                    answer = b"<html>sign in, please"
                elif wrong:
                    status, answer = wrong, b"trouble"
                if answer is None:
                    with outer.lock:
                        status, result = outer.answer(self.path, body)
                    answer = json.dumps(result).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    pass  # the run has ended meanwhile

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path, body):
        url = urllib.parse.urlsplit(path)
        call = url.path.removeprefix("/api/2.0/mlflow/")
        if call == "experiments/get-by-name":
            name = urllib.parse.parse_qs(url.query)["experiment_name"][0]
            if name not in self.experiments:
                return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}
            return 200, {"experiment": {"experiment_id": self.experiments[name]}}
        if call == "experiments/create":
            self.experiments[body["name"]] = str(len(self.experiments) + 1)
            return 200, {"experiment_id": self.experiments[body["name"]]}
        if call == "runs/search":
            wanted = body["filter"].partition("'")[2].rstrip("'")
            found = [self.shown(name) for name, run in self.runs.items() if run["tags"]["trireme.run_id"] == wanted]
            return 200, {"runs": found[:1]}
        if call == "runs/create":
            name = f"run{len(self.runs)}"
            self.runs[name] = {"name": body["run_name"], "status": "RUNNING", "params": {}, "metrics": [], "end_time": None,
                               "tags": {tag["key"]: tag["value"] for tag in body["tags"]}}
            return 200, {"run": self.shown(name)}
        run = self.runs[body["run_id"]]
        if call == "runs/update":
            self.statuses.append(body["status"])
            run.update(status=body["status"], end_time=body.get("end_time"))
        else:
            for kind in ("params", "tags"):
                run[kind].update({pair["key"]: pair["value"] for pair in body.get(kind, [])})
            run["metrics"] += body.get("metrics", [])
        return 200, {}

    def shown(self, name):
        params = [{"key": key, "value": value} for key, value in self.runs[name]["params"].items()]
        return {"info": {"run_id": name}, "data": {"params": params}}

    def values(self):
        """{(metric, step): value} of the only run; what comes twice is the same."""
        run, = self.runs.values()
        return {(metric["key"], metric["step"]): metric["value"] for metric in run["metrics"]}


def values_of(lines):
    """What a tracker must have of these lines of metrics.jsonl."""
    values = {}
    for line in lines:
        for name, value in line.items():
            if name in ("step", "time") or isinstance(value, str):
                continue
            for key, element in ([(f"{name}/{i}", each) for i, each in enumerate(value)] if isinstance(value, list)
                                 else [(name, value)]):
                values[key, line["step"]] = "NaN" if element is None else float(element)
    return values
