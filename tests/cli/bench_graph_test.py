"""`trireme bench graph` as a user runs it: what it prints, drawings, JSON, files, bad input."""
import json
import unittest
import xml.etree.ElementTree

from program import ProgramTest

USER = 2


class BenchGraph(ProgramTest):
    def test_names_files_drawings_and_json(self):
        text = self.succeed("bench", "graph", "base-2", "--learners", 6)
        self.assertIn("graph   ", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        (self.folder / "mine.graph").write_text("learners 2\nround\n0 1 1/2\n1 0 1/4\n")
        report = json.loads(self.succeed("bench", "graph", "./mine.graph", "--json", "--svg", "mine.svg"))
        self.assertEqual((report["learners"], report["doubly_stochastic"]), (2, False))
        self.assertEqual(report["rounds"][0]["kept"], [0.5, 0.75])
        root = xml.etree.ElementTree.parse(self.folder / "mine.svg").getroot()
        self.assertTrue(root.tag.endswith("svg"))

    def test_bad_input_is_one_line(self):
        (self.folder / "bad.graph").write_text("learners 2\nround\n0 1 2\n")
        for words, arguments in ((["expected complete, ring"], ["rings"]), (["base-2"], ["one-peer", "--learners", 6]),
                                 (["bad.graph"], ["./bad.graph"]), (["--learners"], ["ring", "--learners", -1]),
                                 (["--svg"], ["ring", "--svg", "missing/graph.svg"])):
            with self.subTest(words):
                self.fail_with(USER, words, "bench", "graph", *arguments)


if __name__ == "__main__":
    unittest.main()
