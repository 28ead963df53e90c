"""The files of the page keep what its Content-Security-Policy and the one file rely on, and nothing is lost between
them: no inline code, no text of a run as markup, no foreign address, uPlot as npm has it, names that do not clash."""

import hashlib
import re
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "trireme" / "watch" / "page"
UPLOT = {"uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f", "LICENSE.uplot": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"}  # npm's uplot 1.6.32: dist/uPlot.iife.min.js, LICENSE
SCRIPTS = ["uplot.js", "charts.js", "grid.js", "map.js", "views.js", "replay.js", "runs.js", "app.js"]
MOST_LINES = 450
FORBIDDEN = {
    "markup from text": r"\b(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc",
    "code from text": r"\beval\b|\bnew Function\b|setTimeout\(\s*['\"`]|javascript:",
    "an attribute that is code or style": r"setAttribute\(\s*['\"](?:on|style)|\{[^{}\n]*\b(?:on[a-z]+|style): ['\"`]",
    "a module": r"^(?:import|export)\b|\bimport\(",
    "an address": r"\b(?:https?|wss?):|['\"`]//",
    "another way to the network": r"XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts|new Worker",
}


def without_comments(text):
    return re.sub(r"^\s*//.*|\s//\s.*", "", text, flags=re.MULTILINE)


class Files(unittest.TestCase):
    def own_scripts(self):
        return {name: (PAGE / name).read_text() for name in SCRIPTS if name not in UPLOT}

    def test_the_page_loads_each_script_once_and_in_order(self):
        page = (PAGE / "index.html").read_text()
        self.assertEqual(re.findall(r'^<script src="([^"]+)"></script>$', page, re.MULTILINE), SCRIPTS)
        self.assertEqual(page.count("<script"), len(SCRIPTS))
        self.assertEqual(re.findall(r'^<link rel="stylesheet" href="([^"]+)">$', page, re.MULTILINE), ["app.css"])
        self.assertEqual(sorted(path.name for path in PAGE.iterdir()), sorted([*SCRIPTS, "app.css", "index.html", "LICENSE.uplot"]))

    def test_the_markup_has_no_inline_code_or_style(self):
        page = (PAGE / "index.html").read_text()
        self.assertNotRegex(page, r"<[^>]*\s(?:on\w+|style)\s*=|<style|<script>|https?:|javascript:")

    def test_the_scripts_make_text_nodes_and_ask_only_their_server(self):
        for name, text in self.own_scripts().items():
            for what, pattern in FORBIDDEN.items():
                found = re.search(pattern, without_comments(text), re.MULTILINE)
                self.assertIsNone(found, f"{name} has {what}: {found and found.group()}")
        asking = [name for name, text in self.own_scripts().items() for _ in re.findall(r"\bfetch\(", text)]
        self.assertEqual(asking, ["app.js"])

    def test_the_style_loads_nothing(self):
        self.assertNotRegex((PAGE / "app.css").read_text(), r"url\(|@import|https?:|expression")

    def test_scripts_share_one_scope_without_a_clash(self):
        seen = {}
        for name, text in self.own_scripts().items():
            self.assertIn("'use strict';", text)
            self.assertLess(text.count("\n"), MOST_LINES, name)
            for declared in re.findall(r"^(?:async )?(?:const|let|class|function) (\w+)", text, re.MULTILINE):
                self.assertNotIn(declared, seen, f"{name} declares {declared} again")
                seen[declared] = name
        self.assertIn("ask", seen)

    def test_uplot_is_unchanged(self):
        for name, digest in UPLOT.items():
            self.assertEqual(hashlib.sha256((PAGE / name).read_bytes()).hexdigest(), digest, name)

    def test_nothing_ends_a_script_in_the_one_file(self):
        for name in SCRIPTS:
            self.assertNotRegex((PAGE / name).read_text().lower(), r"</script|<!--")


if __name__ == "__main__":
    unittest.main()
