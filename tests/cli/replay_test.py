"""`trireme replay`: the bits of a run's steps again, the operator that reads a planted NaN, and what cannot be replayed."""
import json
import os
import random
import shutil
import unittest

from program import PROGRAM, ProgramTest
from safetensors.torch import load_file

FOUND, USER = 1, 2
LINEAR = [f"model.layers.{layer}.{part}" for layer in range(2)
          for part in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")]


class ReplayTest(ProgramTest):
    def prepare(self):
        super().prepare()
        self.program = os.environ["TRIREME_OWN_CALLBACK"]

    def replay(self, *words, code=0):
        result = self.run_program("replay", *words, "--json")
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)


class Bits(ReplayTest):
    def test_a_reproducible_run_of_four_ranks_has_the_same_bits_on_one(self):
        self.succeed("train", "tiny.toml", "--ranks", 4, "--train.reproducible=true", "--train.steps=12",
                     "--train.micro_batch=2")
        found = self.replay("run", "--step", 9)
        self.assertEqual((found["from_step"], found["compared_steps"]), (5, 4))
        self.assertTrue(found["same_bits_promised"])
        self.assertEqual((found["largest_difference"], found["differing_step"]), (0, 0))
        self.assertGreater(found["operators"], 100)
        self.assertNotIn("finding", found)

    def test_another_layout_promises_no_bits_and_says_how_near_it_is(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--parallel.tensor=2", "--train.steps=7")
        found = self.replay("run", "--step", 7)
        self.assertFalse(found["same_bits_promised"])
        self.assertLess(found["largest_difference"], 1e-4)

    def test_its_own_layout_keeps_the_bits(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--parallel.tensor=2", "--train.steps=7")
        found = self.replay("run", "--step", 7, "--ranks", 2)
        self.assertTrue(found["same_bits_promised"])
        self.assertEqual(found["largest_difference"], 0)

    def test_other_keys_promise_no_bits(self):
        self.succeed("train", "tiny.toml", "--train.steps=7", "--train.reproducible=true")
        self.assertTrue(self.replay("run", "--step", 7, "--data.path=data/tiny")["same_bits_promised"])
        found = self.replay("run", "--step", 7, "--output", "again", "--optimizer.learning_rate=1e-2", "--resume.allow="
                            "optimizer.learning_rate")
        self.assertFalse(found["same_bits_promised"])
        self.assertEqual(found["differing_step"], 7)

    def test_bits_that_differ_are_an_error(self):
        self.succeed("train", "tiny.toml", "--train.steps=7")
        lines = (self.folder / "run/metrics.jsonl").read_text().splitlines()
        numbers = json.loads(lines[5])
        numbers["loss"] *= 1 + 2 ** -40
        lines[5] = json.dumps(numbers)
        (self.folder / "run/metrics.jsonl").write_text("\n".join(lines) + "\n")
        found = self.replay("run", "--step", 7, code=FOUND)
        self.assertEqual(found["differing_step"], 6)


class Findings(ReplayTest):
    def plant(self, unit, ranks, *layout):
        words = ["--mistake.kind=nan", f"--mistake.parameter={unit}.weight", "--mistake.step=8"]
        error = self.fail_with(USER, ["step 8"], "train", "tiny.toml", "--ranks", ranks, *layout, *words)
        self.assertIn("loss", error)

    def test_a_nan_of_a_run_of_sixteen_ranks_is_found_on_one(self):
        unit = random.Random(20261130).choice(LINEAR)
        self.plant(unit, 16, "--parallel.tensor=2", "--train.micro_batch=1", "--parallel.zero=1")
        found = self.replay("run", "--step", 8, code=FOUND)["finding"]
        self.assertEqual((found["unit"], found["reads_unit"], found["what"]), (unit, True, "given-nan"))
        inputs = load_file(self.folder / found["file"])
        self.assertTrue(any(tensor.isnan().any() for tensor in inputs.values()))

    def test_every_kind_of_layer_is_named_and_the_report_can_be_read(self):
        for unit in LINEAR[:4]:
            with self.subTest(unit):
                self.plant(unit, 1)
                result = self.run_program("replay", "run", "--step", 8)
                self.assertEqual(result.returncode, FOUND, result.stderr)
                report = " ".join(result.stdout.split())
                self.assertIn("FOUND", report)
                self.assertIn(unit, report)
                self.assertIn("examined/rank-0.safetensors", report)
                shutil.rmtree(self.folder / "run")

    def test_a_spike_is_found_beside_the_step_before(self):
        self.succeed("train", "tiny.toml", "--train.steps=12", "--optimizer.learning_rate=1e-4")
        self.assertNotIn("finding", self.replay("run", "--step", 9, "--spike", 1e6))
        found = self.replay("run", "--step", 9, "--spike", 1.0000001, "--output", "again", code=FOUND)["finding"]
        self.assertEqual(found["what"], "spike")
        self.assertGreater(found["ratio"], 1)


class BadInput(ReplayTest):
    def test_what_cannot_be_replayed_is_one_line(self):
        self.succeed("train", "tiny.toml", "--train.steps=12")
        self.fail_with(USER, ["no checkpoint of step 1 or before", "oldest is of step 5"], "replay", "run", "--step", 2)
        self.fail_with(USER, ["no checkpoint of step 4 or before"], "replay", "run", "--step", 6, "--spike", 10)
        self.fail_with(USER, ["none", "no folder"], "replay", "none", "--step", 2)
        self.fail_with(USER, ["ended before step 14", "up to 12"], "replay", "run", "--step", 14)
        self.fail_with(USER, ["text", "has no checkpoint"], "replay", "text", "--step", 2)
        self.fail_with(USER, ["does not divide", "replay.log"], "replay", "run", "--step", 7, "--ranks", 3,
                       "--parallel.tensor=2")
        (self.folder / "data").rename(self.folder / "gone")
        self.fail_with(USER, ["data/tiny"], "replay", "run", "--step", 8)
        self.fail_with(USER, ["exists"], "replay", "run", "--step", 8)

    def test_learners_take_no_steps_together(self):
        self.program = PROGRAM  # without callbacks of its own, which learners refuse
        self.succeed("train", "tiny.toml", "--ranks", 2, "--parallel.learners=2", "--train.steps=6")
        self.fail_with(USER, ["parallel.learners"], "replay", "run", "--step", 6)


if __name__ == "__main__":
    unittest.main()
