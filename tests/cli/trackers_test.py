"""Trackers' own packages read back every value of a run: MLflow's server, W&B's offline files, Prometheus' parser."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest
import urllib.request

from mlflow_server import values_of
from program import TIMEOUT, ProgramTest, free_port


class Trackers(ProgramTest):
    def prepare(self):
        super().prepare()
        # The packages may be of another environment than the program's.
        self.python = os.environ["TRIREME_TRACKER_PYTHON"]

    def run_python(self, script, *arguments):
        result = subprocess.run([self.python, "-c", script, *map(str, arguments)], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=10 * TIMEOUT,
                                env={**self.environment, "WANDB_MODE": "offline", "WANDB_SILENT": "true"})
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout


class Mlflow(Trackers):
    def serve(self):
        port = free_port()
        server = subprocess.Popen(
            [self.python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--artifacts-destination", str(self.folder / "art")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

        def stop():
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        self.addCleanup(stop)
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5).read()
                return url
            except OSError:
                self.assertLess(time.monotonic(), end, "the server does not come up")
                self.assertIsNone(server.poll())
                time.sleep(0.2)

    READ = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
found = []
for run in client.search_runs([experiment.experiment_id]):
    values = [[m.key, m.step, "NaN" if m.value != m.value else m.value, m.timestamp]
              for key in run.data.metrics for m in client.get_metric_history(run.info.run_id, key)]
    found.append({"name": run.info.run_name, "status": run.info.status, "params": run.data.params, "tags": run.data.tags,
                  "end": run.info.end_time, "values": values})
print(json.dumps(found))
"""

    def check(self, found, experts):
        run, = found
        self.assertEqual((run["name"], run["status"]), ("run", "FINISHED"))
        self.assertEqual(run["params"]["train.steps"], "20")
        self.assertIn("trireme.version", run["tags"])
        times = {line["step"]: round(line["time"] * 1000) for line in self.metrics()}
        values = {(key, step): value for key, step, value, _ in run["values"]}
        self.assertEqual(values, values_of(self.metrics()))
        self.assertEqual(len(run["values"]), len(values))  # none twice
        self.assertTrue(all(time == times[step] for _, step, _, time in run["values"]))
        self.assertEqual(any(key.startswith("expert_tokens/") for key, _ in values), experts)

    def test_a_run_is_there_live_and_the_same_afterwards(self):
        url = self.serve()
        self.succeed("train", "tiny.toml", "--ranks", 2, f"--tracking.mlflow={url}", "--train.evaluate_interval=5")
        self.check(json.loads(self.run_python(self.READ, url, "trireme")), experts=False)
        self.succeed("track", "mlflow", "run", "--url", url)
        self.check(json.loads(self.run_python(self.READ, url, "trireme")), experts=False)

    def test_an_export_has_every_value(self):
        url = self.serve()
        self.succeed("train", "tiny.toml", "--model.family=mixtral", "--model.experts=4", "--model.expert_width=24")
        self.succeed("track", "mlflow", "run", "--url", url, "--experiment", "ünder / all")
        self.check(json.loads(self.run_python(self.READ, url, "ünder / all")), experts=True)


class Wandb(Trackers):
    # The records of a file: https://github.com/google/leveldb/blob/main/doc/log_format.md, behind a header of 7 bytes.
    READ = """
import glob, json, struct
from wandb.proto import wandb_internal_pb2
path, = glob.glob("wandb/offline-run-*/*.wandb")
data, at, held, found = open(path, "rb").read(), 7, b"", {"rows": []}
while at + 7 <= len(data):
    left = 32768 - at % 32768
    size, kind = struct.unpack_from("<HB", data, at + 4) if left >= 7 else (0, 0)
    if kind == 0:
        at += left
        continue
    held += data[at + 7:at + 7 + size]
    at += 7 + size
    if kind in (2, 3):
        continue
    record, held = wandb_internal_pb2.Record.FromString(held), b""
    named = lambda items: {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
    if record.WhichOneof("record_type") == "history":
        found["rows"].append({name: "NaN" if value != value else value for name, value in named(record.history.item).items()})
    if record.WhichOneof("record_type") == "run":
        found.update(project=record.run.project, name=record.run.display_name, config=named(record.run.config.update))
    if record.WhichOneof("record_type") == "exit":
        found["exit"] = record.exit.exit_code
print(json.dumps(found))
"""

    def test_the_offline_run_has_every_value(self):
        self.succeed("train", "tiny.toml", "--train.evaluate_interval=5", "--train.steps=40")
        script = self.succeed("track", "wandb", "run", "--project", "tests")
        (self.folder / "replay.py").write_text(script)
        self.run_python("import runpy; runpy.run_path('replay.py', run_name='__main__')")
        found = json.loads(self.run_python(self.READ))
        self.assertEqual((found["project"], found["name"], found["exit"]), ("tests", "run", 0))
        self.assertEqual(found["config"]["train.steps"], "40")
        values = {(name, row["_step"]): value for row in found["rows"] for name, value in row.items()
                  if not name.startswith("_")}
        self.assertEqual(values, values_of(self.metrics()))
        self.assertEqual([row["_timestamp"] for row in found["rows"]], [line["time"] for line in self.metrics()])


class Prometheus(Trackers):
    READ = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
samples = [[s.name, s.labels, repr(s.value)] for family in text_string_to_metric_families(sys.stdin.read())
           for s in family.samples]
print(json.dumps(samples))
"""

    def test_the_parser_and_promtool_read_every_value(self):
        self.succeed("train", "tiny.toml", "--ranks", 2)
        process = self.start("watch", "run", "--port=0", "--no-browser", "--json")
        told = json.loads(process.stdout.readline())
        request = urllib.request.Request(f"http://127.0.0.1:{told['port']}/metrics",
                                         headers={"Authorization": "Bearer " + told["url"].partition("token=")[2]})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            text = answer.read().decode()
        result = subprocess.run([self.python, "-c", self.READ], input=text, text=True, stdout=subprocess.PIPE,
                                timeout=TIMEOUT, check=True)
        samples = json.loads(result.stdout)
        of_run = {name: float(value) for name, labels, value in samples if labels == {"run": "run"}}
        last = self.metrics()[-1]
        for name, value in last.items():
            if not isinstance(value, list):
                self.assertEqual(of_run["trireme_" + name.replace(".", "_")], value, name)
        ranks = [(labels["rank"], float(value)) for name, labels, value in samples if name == "trireme_rank_own_seconds"]
        self.assertEqual([rank for rank, _ in ranks], ["0", "1"])
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, timeout=TIMEOUT)
            self.assertIn(checked.returncode, (0, 3), checked.stdout)  # 3: it has advice on names; 1: it cannot read them


if __name__ == "__main__":
    unittest.main()
