"""`trireme watch`: the interface of the page against the files of a run, and the page as one file."""
import http.client
import json
import re
import signal
import unittest
import urllib.error
import urllib.request

from program import TIMEOUT, ProgramTest

PATHS = ["/api/runs", "/api/run", "/api/series?name=loss", "/api/ranks", "/api/waits", "/api/experts", "/api/straggler?rank=0",
         "/api/events", "/api/log?rank=0", "/api/calls", "/api/compare?runs=0", "/api/profile", "/api/memory"]
DATA = re.compile(r'<script type="application/json" id="trireme-data">(.*?)</script>', re.DOTALL)


class WatchTest(ProgramTest):
    def watch(self, *arguments):
        """Starts the server; returns it, its port and its token."""
        process = self.start("watch", *arguments, "--port", "0", "--no-browser", "--json")
        line = process.stdout.readline()
        self.assertTrue(line, process.stderr.read() if not line else "")
        told = json.loads(line)
        return process, told["port"], told["url"].partition("token=")[2]

    def request(self, port, path, headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()

    def ask(self, path):
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return json.loads(answer.read())


class WatchARun(WatchTest):
    def prepare(self):
        super().prepare()
        self.succeed("train", "tiny.toml", "--ranks", "2")

    def test_every_number_is_that_of_the_metrics(self):
        _, self.port, self.token = self.watch("run")
        lines = self.metrics()
        run = self.ask("/api/run?run=0")
        self.assertEqual((run["state"], run["first_step"], run["last_step"], run["steps"], run["ranks"]),
                         ("finished", 1, 20, 20, 2))
        names = [scalar["name"] for scalar in run["scalars"]]
        self.assertIn("loss", names)
        for name in names:
            series = self.ask(f"/api/series?run=0&name={name}")["series"][0]
            expected = [(line["step"], line[name]) for line in lines if name in line]
            self.assertEqual([tuple(pair) for pair in zip(series["steps"], series["mean"])], expected, name)
        row = self.ask("/api/runs")["runs"][0]
        self.assertEqual((row["step"], row["loss"], row["unit"]), (20, lines[-1]["loss"], "tokens"))
        self.assertEqual(row["units_per_second"], lines[-1]["tokens_per_second"])
        zoomed = self.ask("/api/series?run=0&name=loss&from=3&to=10&points=2")["series"][0]
        self.assertEqual(zoomed["steps"], [3, 7])
        self.assertEqual(zoomed["max"], [max(line["loss"] for line in lines[2:6]), max(line["loss"] for line in lines[6:10])])
        self.assertEqual([saved["step"] for saved in run["checkpoints"]], [int(name[5:]) for name in self.checkpoints()])

    def test_every_path_answers_and_the_calls_are_there(self):
        server, self.port, self.token = self.watch("run")
        for path in PATHS:
            self.assertIsInstance(self.ask(path), dict, path)
        calls = self.ask("/api/calls?run=0")["ranks"]
        self.assertEqual([rank["rank"] for rank in calls], [0, 1])
        self.assertTrue(all(call["end"] >= call["begin"] for rank in calls for call in rank["calls"]))
        self.end_server(server)

    def test_the_ranks_numbers_are_those_of_the_steps(self):
        _, self.port, self.token = self.watch("run")
        self.assertIn("own_seconds", self.ask("/api/run?run=0")["rank_columns"])
        series = self.ask("/api/series?run=0&name=ranks/step_seconds")["series"][0]
        self.assertEqual(series["steps"], list(range(1, 21)))
        for slowest, line in zip(series["max"], self.metrics()):
            self.assertAlmostEqual(slowest, line["step_seconds"], delta=1e-4 * line["step_seconds"])
        ranks = self.ask("/api/ranks?run=0&column=own_seconds&step=7")
        self.assertEqual((ranks["step"], len(ranks["values"]), len(ranks["median_by_stage"])), (7, 2, 2))
        straggler = self.ask("/api/straggler?run=0&rank=1")
        self.assertGreater(straggler["step_seconds"], 0)
        self.assertLessEqual(straggler["without"], straggler["step_seconds"])

    def test_prometheus_reads_the_last_values(self):
        _, port, token = self.watch("run")
        status, headers, text = self.request(port, "/metrics", {"Authorization": f"Bearer {token}"})
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        samples = {}
        for line in text.splitlines():
            if line.startswith("#"):
                self.assertRegex(line, r"^# (HELP|TYPE) trireme_\w+ .+$")
                continue
            name, value = re.fullmatch(r'(trireme_\w+\{(?:\w+="[^"]*",?)+\}) (\S+)', line).groups()
            samples[name] = float(value)
        self.assertEqual(samples['trireme_loss{run="run"}'], self.metrics()[-1]["loss"])
        self.assertEqual(samples['trireme_run_state{run="run",state="finished"}'], 1)

    def test_only_who_knows_the_token_gets_an_answer(self):
        _, port, token = self.watch("run")
        for path in [*PATHS, "/", "/app.js", "/metrics", "/none"]:
            self.assertEqual(self.request(port, path, {})[0], 401, path)
        status, headers, _ = self.request(port, f"/?token={token}", {})
        self.assertEqual((status, headers["Location"]), (303, "/"))
        cookie = headers["Set-Cookie"].partition(";")[0]
        self.assertIn("HttpOnly; SameSite=Strict", headers["Set-Cookie"])
        status, headers, text = self.request(port, "/", {"Cookie": cookie})
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertIn("<!doctype html>", text)
        self.assertEqual(self.request(port, "/", {"Cookie": cookie, "Host": "evil.example"})[0], 403)
        for path in ["/../run/config.toml", "/api/trace?name=../config.toml", "/api/run?run=1", "/api/series"]:
            status, _, text = self.request(port, path, {"Cookie": cookie})
            self.assertIn(status, (400, 404), path)
            self.assertIn("error", json.loads(text))

    def test_one_file_has_all_and_asks_for_nothing(self):
        self.succeed("watch", "run", "--html", "page.html")
        page = (self.folder / "page.html").read_text()
        self.assertLess(len(page.encode()), 5_000_000)
        self.assertNotRegex(page, r'<(?:script|img|iframe)[^>]*\ssrc=')
        self.assertNotRegex(page, r'<link[^>]*href="(?!data:)')
        self.assertNotRegex(page, r"url\(['\"]?https?:|@import")
        self.assertIn("default-src 'none'", page)
        data = json.loads(DATA.search(page).group(1))
        loss = data["/api/series?run=0&name=loss"]["series"][0]
        self.assertEqual(loss["mean"], [line["loss"] for line in self.metrics()])
        self.assertEqual(data["/api/run?run=0"]["state"], "finished")

    def test_a_port_in_use_and_folders_without_a_run_are_one_line(self):
        _, port, _ = self.watch("run")
        self.fail_with(2, [str(port), "in use"], "watch", "run", "--port", str(port), "--no-browser")
        self.fail_with(2, ["none", "is not a folder"], "watch", "none")
        self.fail_with(2, ["text", "no run"], "watch", "text")

    def test_a_run_elsewhere_is_a_command_for_ssh(self):
        self.assertEqual(self.succeed("watch", "me@host:runs/x", "--port", "7200"),
                         "ssh -t -L 7200:127.0.0.1:7200 me@host 'trireme watch --no-browser --port 7200 -- runs/x'\n")


class WatchAnyFolder(WatchTest):
    def prepare(self):
        (self.folder / "run").mkdir()

    def put(self, text, mode="w"):
        with (self.folder / "run/metrics.jsonl").open(mode) as file:
            file.write(text)

    def await_step_of(self, step):
        while self.ask("/api/runs")["runs"][0]["step"] != step:
            pass

    def test_a_run_that_grows_goes_back_and_vanishes_is_followed(self):
        self.put('{"step": 1, "loss": 3}\n{"step": 2, "lo')
        server, self.port, self.token = self.watch("run")
        self.assertEqual(self.ask("/api/series?name=loss")["series"][0]["mean"], [3])
        self.put('ss": null}\n{"step": 3, "loss": 2, "<b>\\u001b": 1}\n', "a")
        self.await_step_of(3)
        self.assertEqual(self.ask("/api/series?name=loss")["series"][0]["mean"], [3, None, 2])
        self.assertEqual(self.ask("/api/run")["alerts"][0]["kind"], "nan")
        self.put('{"step": 1, "loss": 9}\n')  # cut, and written anew
        self.await_step_of(1)
        (self.folder / "run").rename(self.folder / "gone")
        for path in PATHS:
            self.ask(path)
        self.assertIsNone(server.poll())
        self.end_server(server)

    def test_one_file_of_a_run_that_died_within_a_line(self):
        self.put('{"step": 1, "</script><script>alert(1)</script>": 3, "loss": 1}\nrubbish\n{"step": 2, "loss": 2.5')
        self.succeed("watch", "run", "--html", "page.html")
        page = (self.folder / "page.html").read_text()
        self.assertNotIn("alert(1)</script>", page)
        data = json.loads(DATA.search(page).group(1))
        self.assertEqual(data["/api/run?run=0"]["last_step"], 1)

    def test_a_signal_ends_it_in_good_order(self):
        self.put('{"step": 1}\n')
        server, _, _ = self.watch("run")
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(timeout=TIMEOUT), 0)


if __name__ == "__main__":
    unittest.main()
