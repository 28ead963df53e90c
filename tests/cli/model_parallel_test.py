"""Tensor, context and pipeline parallelism of the program: the run of one rank, at any layout."""
import json
import re
import unittest

from program import ProgramTest

TENSOR = ["--parallel.tensor=2"]
SEQUENCE = [*TENSOR, "--parallel.sequence_parallel=true"]
RING = ["--parallel.context=2"]
ALL_TO_ALL = [*RING, "--parallel.context_form=all-to-all"]
PIPELINE = ["--parallel.pipeline=2"]

LAYOUTS = {
    "tensor": (2, TENSOR),
    "sequence": (2, SEQUENCE),
    "tensor of four": (4, ["--parallel.tensor=4"]),
    "ring": (2, RING),
    "all-to-all": (2, ALL_TO_ALL),
    "tensor, context": (4, [*SEQUENCE, *RING]),
    "tensor, pipeline": (4, [*TENSOR, *PIPELINE]),
    "tensor, data, zero 3": (4, [*TENSOR, "--parallel.zero=3"]),
    "context, pipeline, zero 2": (4, [*RING, *PIPELINE, "--parallel.zero=2"]),
}


class ModelParallel(ProgramTest):
    def train(self, run, ranks, *overrides, steps=30):
        self.succeed("train", "tiny.toml", "--ranks", ranks, f"--train.steps={steps}",
                     f"--output.folder={run}", *overrides)
        return self.curve(run)

    def assert_close(self, one, two, tolerance):
        for (step, *expected), (_, *found) in zip(one, two, strict=True):
            for x, y in zip(map(float, expected), map(float, found), strict=True):
                self.assertLessEqual(abs(x - y), tolerance * abs(x), f"step {step}")

    def test_every_layout_trains_as_one_rank(self):
        # fp64 of 2^-53, a few hundred roundings a step that thirty steps of training amplify.
        one = self.train("one", 1, "--train.precision=fp64")
        self.assertLess(float(one[-1][1]), float(one[0][1]) - 0.5)  # it learns
        for name, (ranks, overrides) in LAYOUTS.items():
            with self.subTest(layout=name):
                other = self.train(name, ranks, "--train.precision=fp64", *overrides)
                self.assert_close(one, other, 1e-10)

    def test_a_pipeline_changes_no_bit(self):
        one = self.train("one", 1)
        for schedule in ("gpipe", "1f1b", "zero-bubble"):
            with self.subTest(schedule=schedule):
                self.assertEqual(self.train(schedule, 2, *PIPELINE, f"--parallel.schedule={schedule}"),
                                 one)
        order = "--parallel.gradient_order=rank-first"
        two = self.train("two", 2, order)
        for zero in (1, 3):
            with self.subTest(zero=zero):
                self.assertEqual(self.train(f"zero{zero}", 4, *PIPELINE, f"--parallel.zero={zero}", order), two)

    def test_a_chunked_pipeline_changes_no_bit(self):
        one = self.train("one", 1, "--model.layers=4", steps=6)
        for schedule in ("interleaved", "zero-bubble-v", "breadth-first"):
            with self.subTest(schedule=schedule):
                self.assertEqual(self.train(schedule, 2, "--model.layers=4", *PIPELINE,
                                            f"--parallel.schedule={schedule}", steps=6), one)

    def test_layers_move_to_the_faster_stage_and_change_no_bit(self):
        options = ["--model.layers=12", "--train.check_replicas_interval=1", "--parallel.gradient_order=rank-first"]
        expected = self.train("one", 2, *options, steps=9)
        output = self.succeed("train", "tiny.toml", "--ranks", 4, "--train.steps=9", "--output.folder=moved",
                              *options, *PIPELINE, "--parallel.zero=2", "--parallel.stage_layers=11,1",
                              "--parallel.rebalance_interval=3")
        # Stages are measured, and neighbours on the machine blur that: any move to evener stages will do.
        self.assertRegex(output, r"layers of the stages 11,1 -> ([4-9]|10),[2-8]")
        self.assertEqual(self.curve("moved"), expected)
        self.assertFalse((self.folder / "moved" / "rebalance").exists())
        # After the last step nothing is left to be faster.
        output = self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=3", "--output.folder=over",
                              *options, *PIPELINE, "--parallel.stage_layers=11,1", "--parallel.rebalance_interval=3")
        self.assertNotIn("layers of the stages", output)

    def test_layers_move_between_many_stages_and_change_no_bit(self):
        cases = {
            "three stages": (3, 10, "8,1,1", ["--parallel.pipeline=3"]),
            "two stages per rank": (4, 10, "7,1,1,1", [*SEQUENCE, *PIPELINE, "--parallel.schedule=interleaved"]),
            "zero-bubble-v": (4, 8, "5,1,1,1", [*PIPELINE, "--parallel.schedule=zero-bubble-v", "--parallel.zero=3"]),
        }
        for name, (ranks, layers, before, layout) in cases.items():
            with self.subTest(name):
                options = [f"--model.layers={layers}", f"--parallel.stage_layers={before}", *layout]
                expected = self.train(f"{name} at rest", ranks, *options, steps=6)
                output = self.succeed("train", "tiny.toml", "--ranks", ranks, "--train.steps=6",
                                      f"--output.folder={name}", *options, "--parallel.rebalance_interval=2")
                moved = re.search(rf"layers of the stages {before} -> ([\d,]+), to even", output)
                self.assertTrue(moved, output)
                after = [int(count) for count in moved[1].split(",")]
                self.assertEqual(sum(after), layers)
                self.assertLess(max(after), max(map(int, before.split(","))))
                self.assertEqual(self.curve(name), expected)

    def test_a_checkpoint_resumes_at_any_other_layout(self):
        fp64 = "--train.precision=fp64"
        whole = self.train("whole", 1, fp64)
        layouts = [(4, [*TENSOR, *PIPELINE]), (2, SEQUENCE), (4, ["--parallel.tensor=4"]),
                   (4, [*RING, "--parallel.zero=3"]), (1, []), (4, [*PIPELINE, "--parallel.zero=1"])]
        for i, (ranks, overrides) in enumerate(layouts):
            self.train("parts", ranks, fp64, *overrides, "--optimizer.schedule=constant",
                       steps=5 * (i + 1))
        constant = self.train("constant", 1, fp64, "--optimizer.schedule=constant")
        self.assertNotEqual(constant, whole)
        self.assert_close(constant, self.curve("parts"), 1e-10)

    def test_text_comes_out_of_a_checkpoint_of_any_layout(self):
        texts = []
        for run, ranks, overrides in (("one", 1, []), ("four", 4, [*TENSOR, *PIPELINE])):
            self.train(run, ranks, "--train.precision=fp64", *overrides, steps=5)
            texts.append(self.succeed("generate", "--checkpoint", run, "--prompt", "def",
                                      "--tokens", 20, "--temperature", 0))
        self.assertEqual(texts[0], texts[1])

    def test_documents_stay_apart_in_every_layout(self):
        # Several documents in many of the sequences.
        for i in range(400):
            (self.folder / "text" / f"short{i}.txt").write_text(f"{i} is a number, and {i * i} is its square.\n")
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bytes", "--output", "data/tiny")
        common = ["--train.precision=fp64", "--data.separate_documents=true"]
        apart = self.train("apart", 1, *common, steps=6)
        self.assertNotEqual(apart, self.train("joined", 1, *common[:1], steps=6))
        for i, overrides in enumerate(([*SEQUENCE, *RING], [*RING, *PIPELINE], [*TENSOR, "--parallel.zero=3"])):
            self.assert_close(apart, self.train(f"layout{i}", 4, *common, *overrides, steps=6), 1e-10)

    def test_asynchronous_tensor_parallel_says_how_much_it_hides(self):
        hides = r"it hides \d+ % of its communication\n"
        for mode, words in (("on", "asynchronous tensor parallel on: "),
                            ("auto", r"decided asynchronous tensor parallel (on|off): [\d.]+ ms per step with it, [\d.]+ without; ")):
            with self.subTest(mode=mode):
                output = self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=8",
                                      f"--output.folder={mode}", *SEQUENCE, f"--parallel.async_tensor={mode}")
                self.assertRegex(output, r"\n" + words + hides)
                self.assertEqual(output.count("it hides"), 1)
        output = self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=8", *SEQUENCE,
                              "--parallel.async_tensor=off")
        self.assertNotIn("decided", output)

    def test_metrics_say_what_the_layout_cost(self):
        self.train("run", 2, *PIPELINE, steps=3)
        lines = (self.folder / "run" / "metrics.jsonl").read_text().splitlines()
        for line in map(json.loads, lines):
            self.assertGreater(line["communication_fraction"], 0)


class BadLayouts(ProgramTest):
    """One line that names the key, before any rank starts."""

    def refuse(self, words, ranks, *overrides):
        with self.subTest(overrides=overrides):
            self.fail_with(2, words, "train", "tiny.toml", "--ranks", ranks, *overrides)
            self.assertFalse((self.folder / "run").exists())

    def test_ranks_and_axes_must_agree(self):
        self.refuse(["tensor * context * pipeline", "3", "2"], 2, "--parallel.tensor=3")
        self.refuse(["parallel.data", "--ranks 8"], 4, "--parallel.data=4", "--parallel.tensor=2")
        self.refuse(["does not divide 3"], 3, *PIPELINE)
        self.refuse(["does not divide 4"], 4, "--parallel.context=3")
        self.refuse(["parallel.tensor", "at least 1"], 1, "--parallel.tensor=0")
        self.refuse(["parallel.expert is 2 and model.experts 0", "set parallel.expert to 1"], 2, "--parallel.expert=2")
        self.refuse(["parallel.shard", "divisor"], 4, *PIPELINE, "--parallel.zero=1", "--parallel.shard=3")

    def test_the_model_must_be_large_enough(self):
        self.refuse(["parallel.tensor is 5", "model.heads is 4", "at most 4"], 5, "--parallel.tensor=5")
        self.refuse(["parallel.tensor is 3", "model.ffn_width is 2"], 3, "--parallel.tensor=3",
                    "--model.ffn_width=2")
        self.refuse(["has 2 layers", "3 stages", "parallel.pipeline"], 3, "--parallel.pipeline=3")
        self.refuse(["has 2 layers", "4 stages", "interleaved"], 2, *PIPELINE,
                    "--parallel.schedule=interleaved")
        self.refuse(["has 2 layers", "zero-bubble-v"], 2, *PIPELINE,
                    "--parallel.schedule=zero-bubble-v")
        self.refuse(["parallel.context is 2", "heads", "ring"], 4, *TENSOR, *RING, "--parallel.context_form=all-to-all",
                    "--model.heads=2")
        self.refuse(["parallel.context is 8", "sequence_length"], 8, "--parallel.context=8",
                    "--model.sequence_length=4")

    def test_stages_by_hand_must_fit(self):
        self.refuse(["stage_layers", "2 numbers above 0"], 2, *PIPELINE, "--parallel.stage_layers=0,2")
        self.refuse(["stage_layers", "2 numbers above 0", "sum to the 2 layers"], 2, *PIPELINE,
                    "--parallel.stage_layers=1,2")
        self.refuse(["stage_layers", "2 numbers above 0"], 2, *PIPELINE, "--parallel.stage_layers=2")
        self.refuse(["stage_layers", "commas"], 2, *PIPELINE, "--parallel.stage_layers=one")
        self.refuse(["stage_memory", "the best needs"], 2, *PIPELINE, "--parallel.stage_memory=1000")
        self.refuse(["parallel.stages_per_rank", "stages per rank for 1f1b"], 2, *PIPELINE,
                    "--parallel.stages_per_rank=2")

    def test_names_are_checked(self):
        self.refuse(["parallel.schedule", "2f2b", "gpipe, 1f1b"], 2, *PIPELINE, "--parallel.schedule=2f2b")
        self.refuse(["parallel.context_form", "ring, all-to-all"], 2, *RING, "--parallel.context_form=star")

    def test_features_that_need_whole_parameters(self):
        for name in ("muon", "adafactor", "lamb"):
            self.refuse(["optimizer.name", "parallel.tensor = 2", "use adamw"], 2, *TENSOR,
                        f"--optimizer.name={name}")
        for axis in (TENSOR, RING, PIPELINE):
            self.refuse(["measure_noise", "set parallel."], 2, *axis, "--train.measure_noise=true")
        self.refuse(["compression", "parallel.pipeline = 2"], 2, *PIPELINE, "--train.compression=powersgd")


if __name__ == "__main__":
    unittest.main(verbosity=2)
