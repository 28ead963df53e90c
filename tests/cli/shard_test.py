"""`trireme shard --auto`: placements of a traced model, with the reasons, as text and as JSON; errors in one line."""
import json
import re
import unittest

from program import ProgramTest

MODEL = """
[model]
family = "llama"
layers = 4
width = 1024
heads = 8
kv_heads = 4
ffn_width = 2816
sequence_length = 1024
vocab_size = 8192
[train]
steps = 10
global_batch = 1
micro_batch = 1
precision = "bf16"
"""
CLUSTER = """
[cluster]
device = "a100-80gb"
devices_per_node = 4
"""


class Shard(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "model.toml").write_text(MODEL)
        (self.folder / "cluster.toml").write_text(CLUSTER)

    def plan(self, *arguments):
        return json.loads(self.succeed("shard", "model.toml", "cluster.toml", "--auto", "--json", *arguments))

    def test_placements(self):
        plan = self.plan()
        self.assertEqual(plan["axes"], [{"name": "tensor", "size": 4}])
        self.assertLess(abs(plan["gap"]), 1e-6)
        names = {each["name"]: each["placement"] for each in plan["parameters"]}
        self.assertEqual(len(names), 4 * 9 + 3)
        moves = plan["redistributions"]
        self.assertAlmostEqual(sum(move["seconds"] for move in moves), plan["redistribution_seconds"], places=9)
        for move in moves:
            self.assertNotEqual(move["from"], move["to"])
            self.assertTrue(move["why"] and move["operator"] and move["module"], move)
        self.assertLessEqual(plan["step_seconds"], plan["whole_seconds"])
        self.assertEqual(self.plan()["step_seconds"], plan["step_seconds"])

    def test_memory(self):
        free = self.plan("--memory", "0")
        refused = self.fail_with(2, ["GiB of a rank at any split"], "shard", "model.toml", "cluster.toml", "--auto",
                                 "--memory", "0.001")
        least = float(re.search(r"at least ([\d.]+) GiB", refused)[1]) * 2**30
        bound = (least + free["memory_bytes"]) / 2
        plan = self.plan("--memory", str(bound / 2**30))
        self.assertLessEqual(plan["memory_bytes"], bound * (1 + 1e-9))
        self.assertLessEqual(plan["gap"], 0.05)
        self.assertGreaterEqual(plan["step_seconds"], free["step_seconds"] - 1e-12)

    def test_two_axes(self):
        plan = self.plan("--axes", "data=2,tensor=2", "--sequences", "8")
        self.assertEqual([axis["name"] for axis in plan["axes"]], ["data", "tensor"])
        self.assertIn("data: ", plan["parameters"][0]["placement"])

    def test_text(self):
        text = self.succeed("shard", "model.toml", "cluster.toml", "--auto")
        for part in ("cluster  4 x a100-80gb as tensor 4", "operators on 1 sequences", "gap 0.000 %",
                     "model.layers.*.mlp.down_proj.weight [1024, 2816] x 4", "redistributions"):
            self.assertIn(part, text)

    def test_errors(self):
        fail = lambda words, *arguments: self.fail_with(2, words, "shard", "model.toml", "cluster.toml", *arguments)
        fail(["--auto"])
        fail(["--axes", "expected a name and a size"], "--auto", "--axes", "tensor")
        fail(["4 devices"], "--auto", "--axes", "tensor=8")
        fail(["model.family is gpt2", "llama"], "--auto", "--model.family=gpt2", "--model.kv_heads=8")
        fail(["model.dropout is 0.1"], "--auto", "--model.dropout=0.1")
        (self.folder / "images.toml").write_text('[task]\nname = "vision"\n[model]\nfamily = "vit"\n')
        self.fail_with(2, ['task.name is "vision"'], "shard", "images.toml", "cluster.toml", "--auto")


if __name__ == "__main__":
    unittest.main()
