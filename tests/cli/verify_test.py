"""`trireme verify`: layouts that differ by rounding, mistakes that are named, configs that cannot be compared."""
import json
import os
import re
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
               "tensor x zero 3": (4, "parallel.tensor=2", "parallel.zero=3"),
               "tensor, sequence x context": (4, "parallel.tensor=2", "parallel.sequence_parallel=true",
                                              "parallel.context=2")}

    def test_layouts_that_share_the_work_otherwise_differ_by_rounding(self):
        for name, (ranks, *keys) in self.LAYOUTS.items():
            with self.subTest(name):
                words = [word for key in keys for word in ("--b", key)]
                found = self.verify("--ranks-b", ranks, *words, "--steps", 2)
                self.assertIn(found["finding"], ("rounding", "same"))
                self.assertEqual(found["steps"], 2)
                self.assertGreater(found["compared"], 2 * 60)
                self.assertLess(found["largest_rounding_fp64"], 1e-6)

                self.assertEqual(self.kinds(found), self.KINDS)
                self.assertEqual(found["left_out"], [])
                self.assertTrue(found["proved"])

    KINDS = {"activation", "activation gradient", "loss", "gradient", "gradient norm", "optimizer state", "weight"}

    @staticmethod
    def kinds(found):
        return {probe["kind"] for probe in found["probes"] + found["same"]}

    def test_experts_on_other_ranks_repeat_the_choices(self):
        found = self.verify("--ranks-b", 2, "--b", "parallel.expert=2", "--model.experts=4", "--steps", 2)
        self.assertIn(found["finding"], ("rounding", "same"))
        self.assertEqual(self.kinds(found), self.KINDS | {"experts chosen"})
        names = {probe["name"] for probe in found["probes"] + found["same"]}
        self.assertIn("model.layers.0.router", names)

    def test_activations_of_fewer_steps_can_be_compared(self):
        found = self.verify("--ranks-b", 2, "--b", "parallel.tensor=2", "--steps", 1, "--activations", 0)
        self.assertEqual(self.kinds(found), self.KINDS - {"activation", "activation gradient"})
        self.assertFalse(list(self.folder.glob("twins*/*/activations")))

    def test_what_cannot_run_in_fp64_is_judged_by_roundoffs(self):
        found = self.verify("--ranks-b", 2, "--b", "parallel.tensor=2", "--train.precision=bf16", "--steps", 1,
                            "--tier", 3)
        self.assertIn(found["finding"], ("rounding", "same"))
        self.assertFalse(found["proved"])
        self.assertEqual(self.kinds(found), self.KINDS)
        self.assertTrue(all(probe["bound_relative"] > 0 for probe in found["probes"] if probe["kind"] == "activation"))

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

    def test_a_wrong_weight_is_named_at_what_it_makes(self):
        for parameter, probe in ((UP, "model.layers.1"), (NORM, "model.layers.0.attention"),
                                 ("model.embed_tokens.weight", "embedding"), ("model.norm.weight", "norm")):
            with self.subTest(parameter):
                found = self.mistake("weight", parameter, "--steps", 1)
                self.assertEqual(self.first(found), (1, "activation", probe))
                self.assertIn("index", found["first"]["first"])

    def test_without_activations_it_is_seen_in_the_first_loss(self):
        found = self.mistake("weight", UP, "--steps", 1, "--activations", 0)
        self.assertEqual(self.first(found), (1, "loss", ""))

    def test_a_wrong_router_is_named(self):
        found = self.mistake("weight", "model.layers.1.mlp.gate.weight", "--model.experts=4", "--steps", 1)
        self.assertEqual(self.first(found), (1, "activation", "model.layers.1.router"))

    def test_a_mistake_is_much_larger_than_roundoffs(self):
        found = self.mistake("weight", UP, "--steps", 1, "--tier", 3)
        self.assertEqual(self.first(found), (1, "activation", "model.layers.1"))
        self.assertFalse(found["proved"])

    def test_the_page_has_the_tree_and_makes_no_request(self):
        self.mistake("weight", UP, "--steps", 1, "--html", "page.html")
        page = (self.folder / "page.html").read_text()
        self.assertIn("Content-Security-Policy\" content=\"default-src 'none'", page)
        self.assertNotRegex(page, r"https?://|src=\"|@import|url\(")
        data = re.search(r'<script type="application/json" id="trireme-data">(.*?)</script>', page, re.S).group(1)
        comparison = json.loads(data)["comparison"]
        self.assertEqual(self.first(comparison), (1, "activation", "model.layers.1"))
        self.assertIn("mistake.kind=weight", comparison["b"])

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


class FromRun(VerifyTest):
    """Both sides go on from a checkpoint of a run."""
    ROUTERS = ["--model.experts=4", "--model.router_bias_rate=0.001", "--model.balance_loss=0"]  # biases are always fp32

    def from_run(self, *words, code=0):
        result = self.run_program("verify", "run", "--json", *words)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def test_another_layout_differs_by_rounding_and_the_checkpoint_is_only_read(self):
        self.succeed("train", "tiny.toml", "--train.steps=12", *self.ROUTERS)
        files = sorted(path for path in (self.folder / "run/checkpoints").rglob("*") if path.is_file())
        before = [path.read_bytes() for path in files]
        found = self.from_run("--layout", "tensor=2", "--ranks-b", 2, "--from-step", 11, "--steps", 2)
        self.assertIn(found["finding"], ("rounding", "same"))
        self.assertEqual(found["steps"], 2)
        self.assertEqual({probe["step"] for probe in found["probes"] + found["same"]}, {11, 12})
        self.assertEqual([path.read_bytes() for path in files], before)

    def test_a_run_in_bf16_goes_on_in_its_own_precision_and_is_judged_by_roundoffs(self):
        self.succeed("train", "tiny.toml", "--train.steps=8", "--train.precision=bf16")
        words = ["--layout", "tensor=2", "--ranks-b", 2, "--from-step", 5, "--steps", 1, "--tier", 3]
        found = self.from_run(*words, "--output", "twins")
        self.assertIn(found["finding"], ("rounding", "same"))
        self.assertFalse(found["proved"])
        self.assertEqual({probe["step"] for probe in found["probes"] + found["same"]}, {6})
        # The weights that both begin with are those of the checkpoint, in its precision.
        self.assertGreater(max(probe["relative"] for probe in found["probes"] if probe["kind"] == "activation"), 1e-4)
        self.program = os.environ["TRIREME_OWN_CALLBACK"]
        found = self.from_run(*words, "--b", "mistake.kind=gradient", "--b", f"mistake.parameter={UP}",
                              "--b", "mistake.factor=100", "--output", "mistaken", code=BUG)
        self.assertEqual((found["first"]["step"], found["first"]["kind"], found["first"]["name"]), (6, "gradient", UP))
        self.assertFalse(found["proved"])

    def test_what_cannot_go_on_is_one_line(self):
        self.succeed("train", "tiny.toml", "--train.steps=6", "--train.precision=bf16")
        layout = ["--layout", "tensor=2", "--ranks-b", 2, "--steps", 1]
        self.fail_with(USER, ["expected --layout KEY=VALUE"], "verify", "run")
        self.fail_with(USER, ["--layout is of a run's folder"], "verify", "tiny.toml", *layout)
        self.fail_with(USER, ["the run run", "--layout tensor=2"], "verify", "run", "tiny.toml", *layout)
        self.fail_with(USER, ["step 6 of 6", "--from-step"], "verify", "run", *layout)
        self.fail_with(USER, ["expected the TOML file of A"], "verify", "run", "--batch", "batch.safetensors")
        self.fail_with(USER, ["expected one in fp32 or fp64"], "verify", "run", *layout, "--from-step", 5)


class BadInput(VerifyTest):
    def test_sides_that_compute_other_things_are_refused_before_they_run(self):
        for key in ("model.layers=3", "data.seed=2", "train.global_batch=8", "train.seed=5", "optimizer.beta1=0.8",
                    "train.gradient_sum=adasum"):
            self.fail_with(USER, ["to compute different things", key.split("=")[0]], "verify", "tiny.toml", "--b", key)
        self.fail_with(USER, ["to compute different things", "train.precision"], "verify", "tiny.toml", "--tier", 3,
                       "--b", "train.precision=bf16")
        self.fail_with(USER, ["parallel.learners is 1 in A and 2 in B"], "verify", "tiny.toml", "--ranks-b", 2, "--b",
                       "parallel.learners=2")
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
