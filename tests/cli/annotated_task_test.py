"""A user's program around an annotated module (examples/09_annotated_task.cc) has what `trireme train` has."""
import json
import os
import unittest

from program import ProgramTest

USER = 2


class AnnotatedTask(ProgramTest):
    program = os.environ["TRIREME_ANNOTATED_TASK"]
    layout = ["--ranks", 4, "--parallel.tensor=2", "--parallel.zero=3", "--train.recompute=full"]
    settings = ["--train.steps=40", "--train.global_batch=16", "--train.micro_batch=4", "--optimizer.learning_rate=1e-2",
                "--optimizer.warmup_steps=5"]

    def prepare(self):
        pass

    def command(self, run, *options):
        return ["train", *self.settings, "--train.precision=fp64", "--train.evaluate_interval=20",
                "--train.evaluate_sequences=64", "--checkpoint.interval=5", f"--output.folder={run}", *options]

    def losses(self, run):
        return [line["loss"] for line in self.metrics(run)]

    def test_four_ranks_learn_what_one_learns(self):
        self.succeed(*self.command("one"))
        output = self.succeed(*self.command("four", *self.layout))
        for words in ("model   annotated words -> block0 -> head", "data    progressions, 386 samples", "data 2 x tensor 2"):
            self.assertIn(words, output)
        for found, expected in zip(self.losses("four"), self.losses("one"), strict=True):
            self.assertAlmostEqual(found, expected, delta=1e-10 * expected)
        lines = self.metrics("four")
        self.assertLess(lines[-1]["validation_loss"], 0.7 * lines[0]["loss"])
        self.assertGreater(lines[-1]["validation_accuracy"], lines[0]["accuracy"])
        self.succeed("checkpoint", "verify", "four")
        tensors = json.loads(self.succeed("checkpoint", "inspect", "four", "--json"))["tensors"]
        shapes = {tensor["name"]: tensor["shape"] for tensor in tensors}
        self.assertEqual(shapes["block0.fc1.weight"], [128, 32])

    def test_killed_and_resumed_it_has_the_same_bits(self):
        self.assert_a_killed_run_resumes_with_the_same_bits(lambda run: self.command(run, *self.layout))

    def test_verify_says_that_layouts_differ_by_rounding(self):
        (self.folder / "small.toml").write_text("")
        for ranks, *keys in ((2, "parallel.tensor=2"), (2, "parallel.zero=3", "train.recompute=full"),
                             (4, "parallel.tensor=2", "parallel.pipeline=2")):
            words = [word for key in keys for word in ("--b", key)]
            found = json.loads(self.succeed("verify", "small.toml", "--output", f"twins{keys[0]}{ranks}", "--json", "--ranks-b",
                                            ranks, *words, *self.settings, "--steps", 2))
            self.assertIn(found["finding"], ("rounding", "same"), keys)
            names = [probe["name"] for probe in found["probes"] + found["same"] if probe["kind"] == "activation"]
            self.assertEqual(set(names), {"words", "block0", "head"})
            self.assertEqual(found["left_out"], [])

    def write_cluster(self):
        (self.folder / "cluster.toml").write_text('[cluster]\ndevice = "cpu"\ndevices_per_node = 4\n')

    def test_it_runs_as_it_is_planned(self):
        self.write_cluster()
        (self.folder / "run.toml").write_text("[train]\nglobal_batch = 16\nmicro_batch = 4\n")
        plan = json.loads(self.succeed("shard", "run.toml", "cluster.toml", "--auto", "--ranks", 2, "--json", "--write",
                                       "planned.toml"))
        self.assertGreater(plan["predicted_seconds"], 0)
        self.assertEqual(plan["samples"], 4)
        self.assertIn("annotations", self.succeed("shard", "run.toml", "cluster.toml", "--auto", "--ranks", 2))
        command = self.command("planned", "--ranks", 2)
        self.succeed(command[0], "planned.toml", *command[1:])
        self.succeed(*self.command("one"))
        for found, expected in zip(self.losses("planned"), self.losses("one"), strict=True):
            self.assertAlmostEqual(found, expected, delta=1e-10 * expected)
        for option, words in {"--model.layers=2": ["plan again"], "--parallel.notes=[[": ["parallel.notes is", "--write"],
                              "--parallel.pipeline=2": ["parallel.pipeline is 2", "parallel.notes"]}.items():
            command = self.command("refused", "--ranks", 4 if "pipeline" in option else 2, option)
            self.fail_with(USER, words, command[0], "planned.toml", *command[1:])
        self.fail_with(USER, ["--ranks is 9", "4 devices"], "shard", "run.toml", "cluster.toml", "--auto", "--ranks", 9)
        self.fail_with(USER, ["--auto"], "shard", "run.toml", "cluster.toml")
        self.fail_with(USER, ["absent.toml"], "shard", "run.toml", "absent.toml", "--auto")

    def test_the_ranks_plan_and_a_killed_run_keeps_its_plan(self):
        self.write_cluster()
        options = ["--ranks", 4, "--parallel.auto=true", "--parallel.cluster=cluster.toml"]
        self.assert_a_killed_run_resumes_with_the_same_bits(lambda run: self.command(run, *options))
        output = self.succeed(*self.command("run", *options, "--train.steps=42"))
        self.assertIn("the layout with which the run has begun: data", output)
        self.succeed(*self.command("one"))
        for found, expected in zip(self.losses("reference"), self.losses("one"), strict=True):
            self.assertAlmostEqual(found, expected, delta=1e-10 * expected)

    def test_what_it_lacks_is_refused_in_one_line(self):
        for option, words in {"--parallel.context=2": ["parallel.context is 2"],
                              "--parallel.expert=2": ["parallel.expert is 2"],
                              "--train.recompute=selective": ["train.recompute", "\"full\" or \"none\""]}.items():
            self.fail_with(USER, words, *self.command("refused", "--ranks", 2, option))


if __name__ == "__main__":
    unittest.main()
