"""docs/reference/planner-validation.md, its summary and the CSV files behind it say the same."""

import csv
import json
import statistics
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/plan"))
import plan_published  # noqa: E402


def read(name):
    with open(plan_published.RESULTS / name, newline="") as file:
        return list(csv.DictReader(file))


class PlannerValidation(unittest.TestCase):
    def setUp(self):
        self.summary = json.loads((plan_published.RESULTS / "summary.json").read_text())

    def test_the_page_is_what_the_summary_gives(self):
        page = plan_published.PAGE.read_text()
        self.assertEqual(page, plan_published.page(self.summary), "run benchmarks/plan/plan_published.py --page")
        self.assertLessEqual(len([word for word in page.split() if word != "|"]), 600)

    def test_the_summary_is_of_the_steps(self):
        steps = read("steps.csv")
        self.assertEqual({row["source"] for row in steps}, set(self.summary["tables"]) - {plan_published.SMALL})
        groups = {name: [row for row in steps if row["source"] == name] for name in {row["source"] for row in steps}}
        expected = {**self.summary["tables"], "all": self.summary["all_but_small"], "Megatron": self.summary["megatron"]}
        groups["all"] = steps
        groups["Megatron"] = [row for row in steps if row["source"] in plan_published.MEGATRON]
        for name, rows in groups.items():
            ran = [row for row in rows if row["ratio"]]
            error = {"0": [], "1": []}
            for row in ran:
                error[row["fitted"]].append(float(row["ratio"]) - 1)
            every = error["0"] + error["1"]
            # Both sides are rounded to a thousandth.
            with self.subTest(name):
                self.assertEqual(len(ran), expected[name]["rows"])
                self.assertAlmostEqual(statistics.mean(map(abs, every)), expected[name]["mean_absolute"], delta=0.0011)
                self.assertAlmostEqual(statistics.mean(map(abs, error["0"])), expected[name]["held_out"], delta=0.0011)
                self.assertAlmostEqual(statistics.median(every), expected[name]["median"], delta=0.0011)

    def test_a_ratio_is_of_its_seconds(self):
        for row in read("steps.csv"):
            self.assertEqual(row["ratio"] == "", row["out_of_memory"] == "1")
            if row["ratio"]:
                measured = float(row["measured_seconds"])  # rounded to a millisecond
                self.assertAlmostEqual(float(row["predicted_seconds"]) / measured, float(row["ratio"]),
                                       delta=0.0006 + 0.0015 / measured, msg=row)

    def test_the_summary_counts_choices_and_sweeps(self):
        slower = [row for row in read("choices.csv") if float(row["gain"]) < 0]
        self.assertEqual(len(slower), self.summary["choices"]["slower"])
        self.assertEqual(sum(float(row["published_memory_share"]) > plan_published.MEMORY_SHARE for row in slower),
                         self.summary["choices"]["slower_and_too_large"])
        sweeps = [{name: float(row[name]) for name in ("place", "layouts")} for row in read("sweeps.csv")]
        self.assertEqual(len(sweeps), self.summary["sweeps"]["large"])
        self.assertEqual(sum(map(plan_published.is_near_the_best, sweeps)), self.summary["sweeps"]["large_near_the_best"])


if __name__ == "__main__":
    unittest.main()
