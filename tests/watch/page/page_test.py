"""The page of `trireme watch` in Chromium, with drawn runs: every section draws without an error, a foreign
request or a violation of axe-core; keys work; names from a run stay text; a lost server is said; one file asks nothing.

page_test.py MODULES CHROMIUM, as `tools/setup.sh browser` installs them.
`page_test.py MODULES CHROMIUM shots` draws the pictures of docs/guide/images anew.
"""

import base64
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import mock_server

HERE = Path(__file__).resolve().parent
MODULES, CHROMIUM = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")


class Served:
    """The drawn runs on a port."""

    def __enter__(self, port=0):
        self.server = mock_server.serve(port)
        self.port = self.server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def command(action, address, *others):
    return ["node", str(HERE / "browse.js"), MODULES, CHROMIUM, action, address, *others]


def browse(action, address, *others):
    done = subprocess.run(command(action, address, *others), capture_output=True, text=True, timeout=400)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def one_file(run):
    """The page in one file, as `trireme watch --html` writes it."""
    page = (mock_server.PAGE / "index.html").read_text()
    scripts = re.findall(r'<script src="([^"]+)"></script>\n', page)
    code = "\n".join((mock_server.PAGE / name).read_text() for name in scripts)
    style = (mock_server.PAGE / "app.css").read_text()
    data = json.dumps(mock_server.answers_of(run)).replace("<", "\\u003c")

    def digest(text):
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    policy = f"default-src 'none'; script-src {digest(code)}; style-src {digest(style)}; img-src data:"
    page = re.sub(r'<script src="[^"]+"></script>\n', "", page)
    page = page.replace('<link rel="stylesheet" href="app.css">', f"<style>{style}</style>")
    page = page.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">')
    return page.replace("</body>", f'<script type="application/json" id="trireme-data">{data}</script>\n<script>{code}</script>\n</body>')


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Served() as served:
            cls.runs = {seen["name"]: seen for seen in browse("surveyAll", served.address)}

    def check(self, seen):
        for key in ("problems", "violations", "refused"):
            self.assertEqual(seen[key], [], seen["name"])
        self.assertGreater(seen["passes"], 20)
        self.assertLessEqual(seen["overflow"], 0)
        self.assertEqual(seen["elements"], 0)
        self.assertEqual(seen["untabled"], 0)

    def test_every_run_is_drawn_without_a_problem(self):
        runs = self.runs
        self.assertEqual(len(runs), 9)
        for seen in runs.values():
            self.check(seen)
        self.assertIn("all 4 ranks are within", runs["healthy"]["texts"]["mesh"])
        texts = runs["straggler"]["texts"]
        self.assertIn("Largest: Rank 5 (pipeline 1, data 1)", texts["mesh"])
        self.assertRegex(texts["waits"], r"Ranks waited .* for each other, 9\d.*of it for rank 5\.")
        self.assertIn("With rank 5 as fast as its peers a step takes 124\u00a0ms", texts["straggler"])
        self.assertIn("stage 0", texts["bubble"])
        self.assertEqual(runs["crash"]["order"][:3], ["well", "replay", "loss"])
        top = runs["crash"]["top"]
        for words in ("has crashed", "Rank 3 was killed by signal 9", "waited for it in all_reduce #9384 of group data", "Steps 701 to 712"):
            self.assertIn(words, top)
        self.assertNotIn("Which rank", runs["healthy"]["top"])
        self.assertEqual(runs["healthy"]["order"][:3], ["well", "loss", "speed"])
        self.assertIn("The oldest last sign is of rank 3: reduce_scatter of tensor, call 9,383, ended ", runs["crash"]["texts"]["replay"])
        self.assertRegex(runs["experts"]["texts"]["experts"], r"\d+ of 64 experts starve")
        self.assertIn("Rank 517 (pipeline 4, data 0, tensor 5)", runs["thousand"]["texts"]["mesh"])
        self.assertIn("No value of loss is recorded", runs["empty"]["texts"]["loss"])
        self.assertRegex(runs["healthy"]["texts"]["predicted"], r"predicted 118\u00a0ms for the time per step; measured is 12\d\u00a0ms, 1\.0\d times as much\. "
                                                                r"The planner predicted 2\.\d+\u00a0GiB for the memory of a rank")
        self.assertIn("Their configs differ in 2 keys", runs["healthy"]["texts"]["compare"])

    def test_names_of_a_run_stay_text(self):
        seen = self.runs["hostile"]
        self.assertIn("</script><img src=x", seen["title"])
        self.assertNotRegex(seen["title"] + json.dumps(seen["texts"], ensure_ascii=False), "[\u001b\u202e]")
        self.assertIn("</script><img src=x", seen["texts"]["well"])

    def test_keys_move_zoom_and_keep_a_spike_of_one_step(self):
        with Served() as served:
            seen, = browse("keys", served.address)
        self.assertEqual(seen["problems"], [])
        self.assertNotIn("secret", seen["address"])
        self.assertEqual([seen[key] for key in ("j1", "j2", "k3", "slash")], ["well-title", "loss-title", "well-title", "filter"])
        self.assertEqual(seen["filtered"], ["speed"])
        self.assertTrue(seen["help"])
        self.assertEqual(seen["home"], "1")
        self.assertGreater(seen["right"], 1)
        self.assertRegex(seen["valuetext"], r"^Step [\d,]+: loss ")
        self.assertIn("maximum 40 ", seen["spike"])
        self.assertIn("maximum 40 ", seen["zoomed"])
        self.assertRegex(seen["status"], r"^Steps [\d,]+ to [\d,]+ are shown")
        self.assertEqual(seen["all"], "All steps are shown.")
        self.assertEqual(seen["theme"], "light")
        print(f"key to picture: {[round(each) for each in seen['zoomMilliseconds']]} ms")

    def test_a_pointer_reads_zooms_and_chooses(self):
        with Served() as served:
            seen, = browse("point", served.address)
        self.assertEqual(seen["problems"], [])
        self.assertRegex(seen["readout"], r"^Step 5\d\d: loss ")
        self.assertRegex(seen["records"], r"^Around step 5\d\d, 2025-")
        self.assertRegex(seen["status"], r"^Steps 2\d\d to 5\d\d are shown")
        self.assertIn("1 of 8 ranks is above", seen["late"])
        self.assertIn("all 8 ranks are within", seen["early"])
        self.assertEqual(seen["rank"], "Rank 0 is chosen.")
        self.assertEqual(seen["colours"], ["rgb(251, 250, 248)", "rgb(23, 24, 24)"])
        self.assertTrue(seen["address"].endswith("?run=3"), seen["address"])

    def test_a_map_of_1024_ranks_is_drawn_and_walked(self):
        with Served() as served:
            seen, = browse("map", served.address)
        self.assertIn("Rank 129 (pipeline 1, data 0, tensor 1)", seen["readout"])
        self.assertGreater(seen["colours"], 10)
        print(f"map of 1,024 ranks: {seen['mapMilliseconds']} ms from scrolling there, {seen['drawMilliseconds']:.0f} ms from a key")

    def test_a_lost_server_is_said_and_found_again(self):
        with Served() as served:
            browser = subprocess.Popen(command("stale", served.address), stdout=subprocess.PIPE, text=True)
            self.addCleanup(browser.stdout.close)
            self.addCleanup(browser.wait)
            self.assertEqual(json.loads(browser.stdout.readline()), {"seen": "live"})
        seen = json.loads(browser.stdout.readline())
        self.assertRegex(seen["seen"], r"^stale since \d\d:\d\d:\d\d$")
        self.assertIn("The loss fell", seen["loss"])
        again = Served()
        again.__enter__(served.port)
        self.addCleanup(again.__exit__)
        self.assertEqual(json.loads(browser.stdout.readline()), {"seen": "live"})
        self.assertEqual(browser.wait(), 0)

    def test_a_trace_is_drawn_in_the_page(self):
        with Served() as served:
            seen, = browse("trace", served.address)
        self.assertEqual(seen["problems"], [])
        self.assertIn("144 spans in 16 lanes", seen["summary"])
        self.assertTrue(seen["rows"][0].startswith("forward"), seen["rows"])

    def test_one_file_asks_nothing(self):
        with tempfile.TemporaryDirectory(prefix="trireme page ") as folder:
            path = Path(folder) / "crash.html"
            path.write_text(one_file(2))
            seen, = browse("oneFile", "http://nowhere.invalid", str(path))
        self.check(seen)
        self.assertEqual(seen["connection"], "one file")
        self.assertIn("The oldest last sign is of rank 3", seen["texts"]["replay"])


if __name__ == "__main__":
    if sys.argv[3:] == ["shots"]:
        with Served() as drawn:
            browse("shots", drawn.address, str(HERE.parents[2] / "docs" / "guide" / "images"))
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[3:])
