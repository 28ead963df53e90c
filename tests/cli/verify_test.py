"""`trireme verify`: layouts that differ by rounding, mistakes that are named, configs that cannot be compared."""
import json
import os
import unittest

import program
from program import ProgramTest

BUG, USER = 1, 2
UP = "model.layers.1.mlp.up_proj.weight"
NORM = "model.layers.0.input_layernorm.weight"


class VerifyTest(ProgramTest):
    def verify(self, *words, code=0):
        """The report of a comparison of tiny.toml on one rank with what the words make of it."""
        self.number = getattr(self, "number", 0) + 1
        result = self.run_program("verify", "tiny.toml", "--output", f"twins{self.number}", "--json", *words)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)


class Rounding(VerifyTest):
    LAYOUTS = {"tensor, sequence": (2, "parallel.tensor=2", "parallel.sequence_parallel=true"),
               "pipeline": (2, "parallel.pipeline=2"),
               "context": (2, "parallel.context=2"),
               "tensor x zero 3": (4, "parallel.tensor=2", "parallel.zero=3")}

    def test_layouts_that_share_the_work_otherwise_differ_by_rounding(self):
        for name, (ranks, *keys) in self.LAYOUTS.items():
            with self.subTest(name):
                words = [word for key in keys for word in ("--b", key)]
                found = self.verify("--ranks-b", ranks, *words, "--steps", 2)
                self.assertIn(found["finding"], ("rounding", "same"))
                self.assertEqual(found["steps"], 2)
                self.assertGreater(found["compared"], 2 * 60)
                self.assertLess(found["largest_rounding_fp64"], 1e-6)

    def test_one_layout_twice_has_the_same_bits(self):
        found = self.verify("--ranks-a", 2, "--ranks-b", 2, "--a", "parallel.zero=1", "--b", "parallel.zero=3",
                            "--parallel.gradient_order=rank-first", "--steps", 2)
        self.assertEqual((found["finding"], found["probes"]), ("same", []))

    def test_the_report_says_what_was_compared(self):
        output = self.succeed("verify", "tiny.toml", "--ranks-b", 2, "--b", "parallel.tensor=2", "--steps", 1)
        self.assertRegex(output, r"(?m)^run      A in fp32: 1 steps in ")
        self.assertRegex(output, r"(?m)^compared \d+ probes of 1 step")
        self.assertRegex(output, r"(?m)^ROUNDING ")
        self.assertTrue(all(len(line) <= 80 for line in output.splitlines()))


class Mistakes(VerifyTest):
    """Injected by a callback (own_callback.cc) on both ranks of B, under a layout that rounds otherwise than A."""
    def prepare(self):
        super().prepare()
        self.program = os.environ["TRIREME_OWN_CALLBACK"]

    def mistake(self, kind, parameter, *words):
        return self.verify("--ranks-b", 2, "--b", "parallel.tensor=2", "--b", f"mistake.kind={kind}",
                           "--b", f"mistake.parameter={parameter}", *words, code=BUG)

    def first(self, found):
        self.assertEqual(found["finding"], "bug")
        return found["first"]["step"], found["first"]["kind"], found["first"]["name"]

    def test_a_wrong_weight_is_seen_in_the_first_loss(self):
        self.assertEqual(self.first(self.mistake("weight", UP, "--steps", 1)), (1, "loss", ""))

    def test_a_wrong_gradient_is_named(self):
        found = self.mistake("gradient", NORM, "--steps", 1)
        self.assertEqual(self.first(found), (1, "gradient", NORM))
        gradients = [probe["name"] for probe in found["probes"]
                     if probe["kind"] == "gradient" and probe["finding"] == "bug"]
        self.assertEqual(gradients, [NORM])

    def test_a_mistake_below_the_rounding_of_fp32_is_named(self):
        found = self.mistake("gradient", UP, "--steps", 1, "--b", "mistake.factor=1.00000001")
        self.assertEqual(self.first(found), (1, "gradient", UP))

    def test_weights_that_change_between_steps_are_found_after_that_step(self):
        self.assertEqual(self.first(self.mistake("stale", UP, "--steps", 3)), (2, "weight", UP))


class BadInput(VerifyTest):
    def test_sides_that_compute_other_things_are_refused_before_they_run(self):
        for key in ("model.layers=3", "data.seed=2", "train.global_batch=8", "train.seed=5", "optimizer.beta1=0.8",
                    "train.gradient_sum=adasum"):
            self.fail_with(USER, ["to compute different things", key.split("=")[0]], "verify", "tiny.toml", "--b", key)
        self.assertFalse((self.folder / "runs").exists())

    def test_what_a_run_cannot_do_is_said_with_its_own_line(self):
        error = self.fail_with(USER, ["B in fp32", "does not divide 2 ranks"], "verify", "tiny.toml", "--ranks-b", 2,
                               "--b", "parallel.tensor=3")
        self.assertIn("b-fp32.log", error)

    def test_wrong_words_are_refused(self):
        self.fail_with(USER, ["KEY=VALUE"], "verify", "tiny.toml", "--b", "parallel.tensor")
        self.fail_with(USER, ["none.toml"], "verify", "none.toml")
        self.fail_with(USER, ["parallel.tensr"], "verify", "tiny.toml", "--b", "parallel.tensr=2")
        (self.folder / "runs/verify/a-fp32").mkdir(parents=True)
        self.fail_with(USER, ["exists", "--output"], "verify", "tiny.toml")


if __name__ == "__main__":
    unittest.main()
