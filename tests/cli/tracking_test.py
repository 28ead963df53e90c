"""Trackers: a run at an MLflow server while it trains and afterwards, whatever the server does; the script for W&B; the
alerts' command; the log, version and alerts that every run writes."""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

from mlflow_server import MlflowServer, values_of
from program import PROGRAM, TIMEOUT, ProgramTest, rank_of

USER = 2
TOKEN = "a-secret-token-of-tests"
# The decay of the first step makes matrices infinite; a norm would hide weights that are only large.
DIVERGES = ("--optimizer.learning_rate=1e30", "--optimizer.weight_decay=1e30", "--optimizer.warmup_steps=0",
            "--checkpoint.allow_nonfinite=true")
REPOSITORY = pathlib.Path(__file__).parents[2]


class TrackingTest(ProgramTest):
    def serve(self, **options):
        server = MlflowServer(**options)
        self.addCleanup(server.stop)
        return server

    def train(self, url, *options, run="run", ranks=1, **others):
        return self.succeed("train", "tiny.toml", "--ranks", ranks, f"--output.folder={run}", f"--tracking.mlflow={url}",
                            *options, **others)

    def events(self, run="run"):
        return [json.loads(line) for line in (self.folder / run / "events.jsonl").read_text().splitlines()]

    def log(self, run="run", rank=0):
        return (self.folder / run / f"logs/rank-{rank:05}.log").read_text()


class LiveMlflow(TrackingTest):
    def test_a_server_has_every_value(self):
        server = self.serve()
        self.train(server.url, "--tracking.experiment=tests", "--tracking.run_name=first", ranks=2)
        run, = server.runs.values()
        self.assertEqual((run["name"], run["status"]), ("first", "FINISHED"))
        self.assertEqual(list(server.experiments), ["tests"])
        self.assertEqual(run["params"]["train.steps"], "20")
        self.assertEqual(run["tags"]["trireme.ranks"], "2")
        self.assertEqual(server.values(), values_of(self.metrics()))
        times = {metric["step"]: metric["timestamp"] for metric in run["metrics"]}
        self.assertEqual(times, {line["step"]: round(line["time"] * 1000) for line in self.metrics()})
        self.assertGreaterEqual(run["end_time"], times[20])

    def test_a_resumed_run_goes_on_there(self):
        server = self.serve()
        self.train(server.url, "--optimizer.warmup_steps=1", "--train.steps=10")
        self.train(server.url, "--optimizer.warmup_steps=1", "--train.steps=20")
        run, = server.runs.values()
        self.assertEqual((run["params"]["train.steps"], run["tags"]["changed.train.steps"]), ("10", "20"))
        self.assertEqual(server.values(), values_of(self.metrics()))

    def test_whatever_a_server_does_training_goes_on(self):
        self.succeed("train", "tiny.toml", "--output.folder=plain")
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            down = f"http://127.0.0.1:{closed.getsockname()[1]}"
        faults = {"500": lambda _: 500, "403": lambda _: 403, "garbage": lambda _: "garbage", "down": None}
        for name, fault in faults.items():
            url = self.serve(fault=fault).url if fault else down
            output = self.train(url, run=name)
            warnings = [line for line in output.splitlines() if line.startswith("warning: tracking.mlflow")]
            self.assertEqual(len(warnings), 1, output)
            self.assertIn(f"has not got {len(values_of(self.metrics(name)))} values", output)
            self.assertEqual(self.curve(name), self.curve("plain"))

    def test_a_server_that_fails_now_and_then_has_every_value(self):
        faults = 5 * [None] + [500] + 5 * [None] + ["garbage"] + 5 * [None] + [429]
        server = self.serve(fault=lambda number: faults[number % len(faults)])
        self.train(server.url)
        run, = server.runs.values()
        self.assertEqual(run["status"], "FINISHED")
        self.assertEqual(server.values(), values_of(self.metrics()))

    def test_a_slow_server_gets_what_it_takes(self):
        server = self.serve(fault=lambda _: 10.0)
        output = self.train(server.url)
        self.assertIn("values of the run; `trireme track mlflow` sends them later", output)
        self.assertEqual(len(self.metrics()), 20)

    def test_secrets_are_nowhere(self):
        server = self.serve()
        environment = {"MLFLOW_TRACKING_TOKEN": TOKEN}
        output = self.train(server.url, environment=environment)
        self.assertEqual({headers["authorization"] for headers in server.headers}, {f"Bearer {TOKEN}"})
        output += self.succeed("track", "mlflow", "run", "--url", server.url, environment=environment)
        self.assertNotIn(TOKEN, output)
        for path in (self.folder / "run").rglob("*"):
            if path.is_file():
                self.assertNotIn(TOKEN.encode(), path.read_bytes(), path)

    def test_what_cannot_be_is_refused_before_the_run(self):
        for url in ("127.0.0.1:5000", "http://me:word@host", "file:///tmp"):
            self.fail_with(USER, ["tracking.mlflow"], "train", "tiny.toml", f"--tracking.mlflow={url}")
        self.fail_with(USER, ["MLFLOW_TRACKING_TOKEN"], "train", "tiny.toml", "--tracking.mlflow=http://127.0.0.1:1",
                       environment={"MLFLOW_TRACKING_TOKEN": "two words"})
        self.assertFalse((self.folder / "run").exists())

    def test_a_run_that_fails_has_failed_there(self):
        server = self.serve()
        result = self.run_program("train", "tiny.toml", f"--tracking.mlflow={server.url}", *DIVERGES, "--train.steps=1000",
                                  "--train.skip_bad_steps=300")  # steps for the server to hear of it
        self.assertNotEqual(result.returncode, 0)
        run, = server.runs.values()
        self.assertEqual(run["status"], "FAILED")

    def test_a_lost_rank_is_no_failure_under_an_agent(self):
        server = self.serve()
        output = self.succeed("run", "--nproc-per-node", 2, "--inject", "kill rank=1 at step=4", "--", PROGRAM, "train", "tiny.toml",
                              f"--tracking.mlflow={server.url}")
        self.assertIn("epoch 2", output)
        self.assertEqual(server.statuses[-1], "FINISHED")
        self.assertNotIn("FAILED", server.statuses)
        self.assertIn("RUNNING", server.statuses[:-1])
        self.assertEqual({step for _, step in server.values()}, set(range(1, 21)))

    def test_a_run_that_is_stopped_was_killed_there(self):
        server = self.serve()
        process = self.start("train", "tiny.toml", f"--tracking.mlflow={server.url}", "--train.steps=1000000")
        self.await_step(3, process)
        process.terminate()
        process.communicate(timeout=TIMEOUT)
        run, = server.runs.values()
        self.assertEqual((process.returncode, run["status"]), (0, "KILLED"))
        self.assertEqual(server.values(), values_of(self.metrics()))


class Export(TrackingTest):
    def prepare(self):
        super().prepare()
        self.succeed("train", "tiny.toml", "--train.evaluate_interval=0")

    def test_mlflow_has_every_value_afterwards(self):
        server = self.serve()
        result = json.loads(self.succeed("track", "mlflow", "run", "--url", server.url, "--json"))
        self.assertEqual((result["steps"], result["status"]), (20, "FINISHED"))
        self.assertEqual(server.values(), values_of(self.metrics()))
        self.assertEqual(result["values"], len(server.values()))
        self.succeed("track", "mlflow", "run", "--url", server.url)
        self.assertEqual(len(server.runs), 1)  # the same run, not another

    def test_what_cannot_be_sent_is_one_line(self):
        server = self.serve(fault=lambda _: 403)
        self.fail_with(USER, ["HTTP 403", "MLFLOW_TRACKING_TOKEN"], "track", "mlflow", "run", "--url", server.url)
        self.fail_with(USER, ["no address of a server"], "track", "mlflow", "run", "--url", "5000")
        self.fail_with(USER, ["text is no run"], "track", "mlflow", "text", "--url", server.url)
        self.fail_with(USER, ["nowhere is no run"], "track", "wandb", "nowhere")

    def test_the_script_for_wandb_holds_every_value(self):
        self.succeed("track", "wandb", "run", "--project", "mine", "--output", "replay.py")
        self.assertEqual((self.folder / "replay.py").read_text(), self.succeed("track", "wandb", "run", "--project", "mine"))
        # A module of this name stands in for the package.
        (self.folder / "wandb.py").write_text(
            "import json\nrows = []\n\nclass Run:\n"
            "    def log(self, values, step):\n        rows.append([step, values])\n"
            "    def finish(self, exit_code):\n        json.dump([head, rows, exit_code], open('got.json', 'w'))\n\n"
            "def init(**given):\n    global head\n    head = given\n    return Run()\n")
        subprocess.run([sys.executable, "-B", "replay.py"], cwd=self.folder, check=True, timeout=TIMEOUT)
        head, rows, code = json.loads((self.folder / "got.json").read_text())
        self.assertEqual((head["project"], head["name"], head["config"]["train.steps"], code), ("mine", "run", "20", 0))
        self.assertEqual([values["_timestamp"] for _, values in rows], [line["time"] for line in self.metrics()])
        got = {(name, step): "NaN" if value != value else value for step, values in rows
               for name, value in values.items() if name != "_timestamp"}
        self.assertEqual(got, values_of(self.metrics()))


class PlainRuns(TrackingTest):
    def test_what_rank_0_shows_is_in_the_log(self):
        output = self.succeed("train", "tiny.toml", "--ranks", 2)
        shown = [line for line in output.splitlines() if line.startswith(("step", "model", "saved"))]
        self.assertGreater(len(shown), 3)
        texts = [line.partition("| ")[2] for line in self.log().splitlines()]
        for line in shown:
            self.assertIn(line, texts)
        self.assertIn(shown[-1], self.succeed("logs", "run"))

    def test_a_failed_rank_is_in_its_log(self):
        process = self.start("train", "tiny.toml", "--ranks=2", "--threads=1", "--train.steps=1000000",
                             "--checkpoint.interval=0")
        self.await_step(3, process)
        os.kill(rank_of(process, 1), 9)
        process.communicate(timeout=TIMEOUT)
        self.assertRegex(self.log(rank=1), r"err\| trireme: rank 1 was killed by signal 9")

    def test_a_run_knows_what_made_it(self):
        self.succeed("train", "tiny.toml")
        facts = json.loads((self.folder / "run/run.json").read_text())
        version = self.succeed("--version")
        self.assertIn(f"trireme {facts['version']} (libtorch {facts['libtorch']}", version)
        if facts["revision"]:
            self.assertIn(facts["revision"], version)
        self.assertIn(f"trireme {facts['version']}", self.events()[0]["text"])

    def test_a_loss_that_is_no_number_is_an_event(self):
        self.succeed("train", "tiny.toml", *DIVERGES, "--train.steps=5", "--train.skip_bad_steps=5")
        found = [(event["event"], event["text"]) for event in self.events() if event.get("cause") == "alert"]
        self.assertEqual(found.count(("notice", "nan: the loss is not finite")), 1, found)  # a busy machine may have more
        self.assertIn("| alert   ", self.log())


class AlertsAndBoard(TrackingTest):
    def watch(self, *options):
        process = self.start("watch", "run", "--port=0", "--no-browser", "--json", *options)
        return process, json.loads(process.stdout.readline())

    def ask(self, told, path):
        token = (self.folder / "token").read_text()
        request = urllib.request.Request(f"http://127.0.0.1:{told['port']}{path}",
                                         headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.read().decode()

    def append(self, **line):
        with open(self.folder / "run/metrics.jsonl", "a") as file:
            file.write(json.dumps({"epoch": 1, **line}) + "\n")

    def await_text(self, name, text):
        end = time.monotonic() + TIMEOUT
        path = self.folder / name
        while text not in (path.read_text() if path.exists() else ""):
            self.assertLess(time.monotonic(), end, f"{name} lacks {text!r}")
            time.sleep(0.02)

    def test_a_new_alert_runs_the_command(self):
        self.succeed("train", "tiny.toml")
        self.append(step=21, loss=None, time=1000)  # long ago
        process, _ = self.watch("--on-alert", "cat >> said", "--alert-interval=0")
        self.append(step=22, loss=1.0, time=time.time() + 1)
        self.append(step=23, loss=None, time=time.time() + 1)
        self.await_text("said", '"kind":"nan"')
        self.end_server(process)
        said = [json.loads(line) for line in (self.folder / "said").read_text().splitlines()]
        self.assertEqual([(alert["run"], alert["step"]) for alert in said if alert["kind"] == "nan"], [("run", 23)])

    def test_a_command_that_hangs_is_killed(self):
        self.succeed("train", "tiny.toml")
        process, told = self.watch("--on-alert", "echo begun >> said; sleep 1000", "--alert-timeout=1", "--token-file=token")
        self.append(step=21, loss=None, time=time.time() + 1)
        self.await_text("said", "begun")
        self.assertIn("trireme_step", self.ask(told, "/metrics"))  # the page answers meanwhile
        self.assertIn("was killed after 1 s (--alert-timeout)", process.stderr.readline())

    def test_the_board_asks_for_what_there_is(self):
        self.succeed("train", "tiny.toml", "--ranks", 2)
        _, told = self.watch("--token-file=token")
        self.assertEqual((self.folder / "token").stat().st_mode & 0o777, 0o600)
        names = {line.partition("{")[0] for line in self.ask(told, "/metrics").splitlines() if not line.startswith("#")}
        board = json.loads((REPOSITORY / "docs/guide/grafana-board.json").read_text())
        asked = {name for panel in board["panels"] for target in panel.get("targets", [])
                 for name in re.findall(r"trireme_\w+", target["expr"])}
        self.assertGreater(len(asked), 8)
        self.assertEqual(asked - names, set())


if __name__ == "__main__":
    unittest.main()
