"""`trireme bench pipeline` as a user runs it: drawings, the table, JSON, a run, bad input."""
import json
import unittest
import xml.etree.ElementTree

from program import ProgramTest

KEYS = {"schedule", "stages", "chunks", "microbatches", "step_milliseconds", "ideal_milliseconds", "bubble",
        "formula_bubble", "idle_shares", "peak_until_backward", "peak_until_weight", "transfers"}
MEASURED = {"measured_step_milliseconds", "measured_bubble"}
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-v", "breadth-first"]


class BenchPipeline(ProgramTest):
    def bench(self, *arguments):
        return json.loads(self.succeed("bench", "pipeline", "--json", *arguments))

    def test_help_teaches(self):
        text = self.succeed("bench", "pipeline", "--help")
        for word in ("trireme bench pipeline --compare", "--memory-limit", "(p-1)/(m+p-1)", *SCHEDULES):
            self.assertIn(word, text)

    def test_the_timeline_fits_the_width(self):
        for schedule in SCHEDULES:
            text = self.succeed("bench", "pipeline", "--schedule", schedule, "--microbatches", 24,
                                "--width", 72)
            drawing = [line for line in text.splitlines() if line.startswith("rank") and "%" not in line]
            self.assertEqual(len(drawing) % 4, 0)
            self.assertLessEqual(max(map(len, drawing)), 72)
            self.assertIn("F23", text)
            self.assertIn("bubble ", text)
            self.assertNotIn("\033", text)
        self.assertIn("\033[", self.succeed("bench", "pipeline", "--color"))

    def test_formulas_of_every_schedule(self):
        p, m, v = 4, 16, 2
        results = self.bench("--compare", "--stages", p, "--microbatches", m)
        self.assertEqual([result["schedule"] for result in results], SCHEDULES)
        for result in results:
            self.assertEqual(set(result), KEYS)
            self.assertAlmostEqual(result["bubble"], result["formula_bubble"])
            self.assertEqual(len(result["idle_shares"]), p)
        bubbles = {result["schedule"]: result["bubble"] for result in results}
        self.assertAlmostEqual(bubbles["1f1b"], (p - 1) / (m + p - 1))
        self.assertAlmostEqual(bubbles["interleaved"], (p - 1) / (m * v + p - 1))
        self.assertAlmostEqual(bubbles["zero-bubble-v"], 0)
        table = self.succeed("bench", "pipeline", "--compare").splitlines()
        self.assertEqual(len(table), 1 + len(SCHEDULES))
        self.assertEqual({len(line) for line in table}, {len(table[0])}, "\n".join(table))

    def test_more_memory_leaves_less_bubble(self):
        first, second = (self.bench("--schedule", "zero-bubble", "--memory-limit", limit)[0]
                         for limit in (4, 8))
        self.assertLess(second["bubble"], first["bubble"])
        self.assertGreater(max(second["peak_until_weight"]), max(first["peak_until_weight"]))

    def test_a_run_is_measured_and_drawn(self):
        for schedule in ("1f1b", "zero-bubble-v"):
            (result,) = self.bench("--run", "--runs", 1, "--schedule", schedule, "--stages", 8,
                                   "--forward", 5, "--backward-input", 5, "--backward-weight", 5,
                                   "--svg", "drawn.svg")
            self.assertEqual(set(result), KEYS | MEASURED)
            self.assertGreaterEqual(result["measured_step_milliseconds"], result["step_milliseconds"])
            drawing = xml.etree.ElementTree.parse(self.folder / "drawn.svg")
            titles = [title.text for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
            chunks = result["chunks"]
            self.assertEqual(sum(title.startswith("forward of") for title in titles), 8 * 8 * chunks)
        self.assertIn("stages that sleep",
                      self.succeed("bench", "pipeline", "--run", "--runs", 1, "--stages", 2))

    def test_bad_input(self):
        for expected, arguments in [
                (["2f2b", "zero-bubble-v"], ["--schedule", "2f2b"]),
                (["--stages: 0", "at least 1"], ["--stages", "0"]),
                (["--microbatches: -1", "at least 1"], ["--microbatches", "-1"]),
                (["1f1b", "is 3", "expected 1"], ["--chunks", "3"]),
                (["memory limit of 2", "at least 4"], ["--schedule", "zero-bubble", "--memory-limit", "2"]),
                (["--runs", "0"], ["--run", "--runs", "0"]),
                (["forward", "above 0"], ["--forward", "0"]),
                (["--svg", "--compare"], ["--svg", "a.svg", "--compare"]),
                (["--svg", "/no/folder"], ["--svg", "/no/folder/a.svg"]),
                (["columns wide"], ["--width", "5"]),
                (["--colour"], ["--colour"])]:
            with self.subTest(arguments=arguments):
                self.fail_with(2, expected, "bench", "pipeline", *arguments)


if __name__ == "__main__":
    unittest.main()
