"""`trireme plan` of a recommendation model, and training with the planner's placements."""
import json
import random
import struct
import unittest

from program import CLUSTER, ProgramTest

CONFIG = """
[task]
name = "recommend"
[model]
width = 8
bottom = "8"
top = "8"
[data]
path = "clicks"
[tables]
placement = "auto"
learning_rate = 0.05
[train]
steps = 12
global_batch = 64
micro_batch = 32
[optimizer]
learning_rate = 1e-3
[output]
folder = "run"
"""
ROWS = {"user": 3000, "item": 500, "shop": 20}


def write_clicks(folder, samples=4000):
    """A prepared folder (docs/design/feature-files.md) with hot rows at the front of each table."""
    folder.mkdir()
    tables = [{"name": name, "rows": rows, "min_ids": 1, "max_ids": 1, "side": "query"} for name, rows in ROWS.items()]
    (folder / "features.json").write_text(json.dumps({
        "format": "trireme-features", "version": 1, "dense": ["x"], "tables": tables, "label": "binary", "classes": [],
        "training_samples": samples, "validation_samples": 0, "items": 0, "min_count": 0}))
    draw = random.Random(1)
    with open(folder / "train.bin", "wb") as file:
        for _ in range(samples):
            ids = [min(rows - 1, int(rows * draw.random() ** 4)) for rows in ROWS.values()]
            file.write(struct.pack("<ff3I", ids[0] % 2, draw.random(), *ids))


class PlanTables(ProgramTest):
    def prepare(self):
        write_clicks(self.folder / "clicks")
        (self.folder / "config.toml").write_text(CONFIG)
        (self.folder / "cluster.toml").write_text(CLUSTER)

    def plan(self, *arguments):
        return json.loads(self.succeed("plan", "config.toml", "cluster.toml", "--json", *arguments))

    def test_as_json(self):
        plan = self.plan()
        self.assertEqual([table["name"] for table in plan["tables"]], [f"embedding.{name}" for name in ROWS])
        self.assertEqual([table["memory_bytes"] for table in plan["tables"]], [rows * (8 * 4 + 4) for rows in ROWS.values()])
        self.assertEqual(len(plan["ranks"]), 4)
        self.assertEqual(sum(rank["memory_bytes"] for rank in plan["ranks"]), sum(ROWS.values()) * 36)
        self.assertAlmostEqual(sum(rank["sent_bytes"] for rank in plan["ranks"]),
                               sum(rank["received_bytes"] for rank in plan["ranks"]), delta=1)
        for other in ("all_by_rows", "whole_in_turn"):
            self.assertLessEqual(plan["planned"]["seconds"], plan[other]["seconds"])
        self.assertEqual(plan["tables"][0]["ids_per_sample"], 1)
        self.assertGreater(plan["tables"][0]["zipf_exponent"], 0.3)
        again = self.plan()
        for run in (plan, again):
            del run["search_seconds"]
        self.assertEqual(plan, again)

    def test_for_people(self):
        text = self.succeed("plan", "config.toml", "cluster.toml")
        for word in ("4 x cpu", "3 with 3.5 k rows", "embedding.user", "ids/sample", "planned", "all by rows", "whole in turn"):
            self.assertIn(word, text)

    def test_without_data_but_its_skew(self):
        plan = self.plan("--zipf", "1.2", "--gpus-at-most", "2")
        self.assertEqual(plan["tables"][1]["zipf_exponent"], 1.2)
        self.assertEqual(len(plan["ranks"]), 2)

    def test_refusals(self):
        needed = sum(ROWS.values()) * 36
        message = self.fail_with(2, [f"need {needed} bytes", "4 ranks", "at least 12 ranks"],
                                 "plan", "config.toml", "cluster.toml", "--table-memory", "1e-5")
        missing = int(message.split(" have ")[1].split()[0])
        self.assertAlmostEqual(missing, needed - 4 * 2**30 * 1e-5, delta=1)
        self.fail_with(2, ["leave --fix"], "plan", "config.toml", "cluster.toml", "--fix", "tensor=2")
        self.fail_with(2, ["nowhere"], "plan", "config.toml", "cluster.toml", "--data.path=nowhere")
        self.fail_with(2, ["task.name"], "simulate", "config.toml", "cluster.toml")

    def test_training_takes_the_placements(self):
        text = self.succeed("train", "config.toml", "--ranks", "2")
        self.assertRegex(text, r"tables  the planner's choice for 3 tables: ")
        self.assertRegex(text, r"busiest rank / mean: look-ups 1\.\d\d \(predicted 1\.\d\d\)")
        placements = json.loads((self.folder / "run" / "table_placements.json").read_text())
        self.assertEqual([table["rows"] for table in placements["tables"]], list(ROWS.values()))
        self.assertEqual(len(placements["ranks"]), 2)
        measured = float(text.split("mean per step: ")[1].split()[0])
        predicted = sum(rank["look_ups"] for rank in placements["ranks"]) / 2
        self.assertAlmostEqual(measured / predicted, 1, delta=0.1)


if __name__ == "__main__":
    unittest.main()
