"""Mixture of experts in the program: one run at every layout, checkpoints between them, and what is refused."""
import json
import math
import unittest

from safetensors.torch import load_file

from program import ProgramTest

SPARSE = ["--model.family=mixtral", "--model.experts=5", "--model.expert_width=24", "--model.shared_experts=1",
          "--model.router_z_loss=1e-2", "--model.balance_loss=0.1"]
EXPERT = ["--parallel.expert=2"]
LAYOUTS = {
    "two": (2, EXPERT),
    "replicas, zero 3": (4, [*EXPERT, "--parallel.zero=3"]),
    "four": (4, ["--parallel.expert=4", "--parallel.zero=1"]),
    "tensor": (4, [*EXPERT, "--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "chunks": (2, [*EXPERT, "--parallel.expert_chunk=10", "--train.recompute=full"]),
    "copies": (3, ["--parallel.expert=3", "--parallel.expert_replicas=2", "--train.uneven_batches=true"]),
    "pipeline": (4, [*EXPERT, "--parallel.pipeline=2", "--parallel.schedule=zero-bubble"]),
    "over a context axis": (4, ["--parallel.expert=4", "--parallel.context=2", "--parallel.zero=2"]),
}


class Experts(ProgramTest):
    def train(self, run, ranks, *overrides, steps=12):
        self.succeed("train", "tiny.toml", "--ranks", ranks, f"--train.steps={steps}", f"--output.folder={run}",
                     *SPARSE, *overrides)
        return self.curve(run)

    def assert_close(self, one, two):
        # fp64: a few hundred roundings of 2^-53 a step, which training amplifies.
        for (step, *expected), (_, *found) in zip(one, two, strict=True):
            for x, y in zip(map(float, expected), map(float, found), strict=True):
                self.assertLessEqual(abs(x - y), 1e-10 * abs(x), f"step {step}")

    def test_every_layout_trains_as_one_rank(self):
        one = self.train("one", 1, "--train.precision=fp64")
        self.assertLess(float(one[-1][1]), float(one[0][1]) - 0.2)  # it learns
        for name, (ranks, overrides) in LAYOUTS.items():
            with self.subTest(layout=name):
                other = self.train(name, ranks, "--train.precision=fp64", "--train.check_replicas_interval=4",
                                   *overrides)
                self.assert_close(one, other)

    def test_zero_and_recomputation_change_no_bit(self):
        for expert in ([], EXPERT):
            expected = self.train(f"ddp{len(expert)}", 4, *expert, steps=6)
            for i, options in enumerate((["--parallel.zero=1"], ["--parallel.zero=2"], ["--parallel.zero=3"],
                                         ["--parallel.zero=3", "--train.recompute=full"],
                                         ["--train.recompute=selective", "--train.recompute_modules=feed_forward"])):
                with self.subTest(expert=expert, options=options):
                    self.assertEqual(self.train(f"other{len(expert)}{i}", 4, *expert, *options, steps=6), expected)

    def test_every_optimizer_updates_an_expert_alike_on_any_rank(self):
        for name in ("adafactor", "muon", "lamb", "lars"):
            options = [f"--optimizer.name={name}", "--train.precision=fp64"]
            one = self.train(f"{name}1", 1, *options, steps=6)
            for layout, ranks, overrides in (
                    ("2", 2, EXPERT), ("3", 3, ["--parallel.expert=3", "--train.uneven_batches=true"]),
                    ("zero", 4, [*EXPERT, "--parallel.zero=1"])):
                with self.subTest(optimizer=name, layout=layout):
                    self.assert_close(one, self.train(f"{name}-{layout}", ranks, *options, *overrides, steps=6))
            # States of experts go to the ranks that have them next.
            parts = [*options, "--optimizer.schedule=constant"]
            whole = self.train(f"{name}-whole", 1, *parts, steps=6)
            self.train(f"{name}-parts", 4, *parts, *EXPERT, "--parallel.zero=1", steps=2)
            self.train(f"{name}-parts", 3, *parts, "--parallel.expert=3", "--train.uneven_batches=true", steps=4)
            self.train(f"{name}-parts", 1, *parts, steps=6)
            self.assert_close(whole, self.curve(f"{name}-parts"))

    def test_gradients_of_experts_are_compressed(self):
        plain, *compressed = [self.train(f"compressed-{rule}", 4, *EXPERT, f"--train.compression={rule}", steps=6)
                              for rule in ("none", "bf16", "fp16", "int8")]
        for curve in compressed:
            self.assertNotEqual(curve, plain)
            for (_, expected, _), (_, found, _) in zip(plain, curve, strict=True):
                self.assertLess(abs(float(found) - float(expected)), 1e-2)

    def test_copies_of_experts_change_no_bit_and_keep_tokens_at_home(self):
        options = [*EXPERT, "--model.capacity_factor=1.5", "--parallel.zero=2", "--optimizer.schedule=constant"]
        expected = self.train("plain", 4, *options)
        for copies in (2, 5):
            self.train(f"copies{copies}", 4, *options, f"--parallel.expert_replicas={copies}", steps=5)
            found = self.train(f"copies{copies}", 4, *options, f"--parallel.expert_replicas={copies}")  # it resumes
            self.assertEqual(found, expected)
            lines = [json.loads(line) for line in (self.folder / f"copies{copies}/metrics.jsonl").read_text().splitlines()]
            shares = [line["copied_share/1"] for line in lines]
            # The first step, and the first of the resumed run, know no step before.
            self.assertEqual([i for i, share in enumerate(shares) if share == 0], [0, 5])
            kept = 1 - lines[3]["dropped_share/1"]
            if copies == 5:
                self.assertAlmostEqual(shares[3], kept, places=12)
            else:
                self.assertGreater(shares[3], 2 / 5 * kept)  # the busiest two

    def test_a_checkpoint_goes_on_at_any_other_expert_degree(self):
        common = ["--train.precision=fp64", "--optimizer.schedule=constant"]
        whole = self.train("whole", 1, *common, steps=20)
        layouts = [(2, EXPERT), (4, ["--parallel.expert=4", "--parallel.zero=3"]), (1, []),
                   (3, ["--parallel.expert=3", "--parallel.zero=1", "--train.uneven_batches=true"]),
                   (4, [*EXPERT, "--parallel.tensor=2"])]
        for i, (ranks, overrides) in enumerate(layouts):
            self.train("parts", ranks, *common, *overrides, steps=4 * (i + 1))
        self.assert_close(whole, self.curve("parts"))

    def test_a_checkpoint_has_every_ranks_experts(self):
        # KempnerForge#202: it had those of one rank, under the names of all.
        weights = []
        for run, ranks, overrides in (("one", 1, []), ("four", 4, ["--parallel.expert=4"])):
            self.train(run, ranks, "--train.precision=fp64", "--model.shared_experts=0", *overrides, steps=3)
            self.succeed("checkpoint", "export", run, "--output", f"{run}-hf")
            weights.append(load_file(self.folder / f"{run}-hf/model.safetensors"))
        experts = {name: tensor for name, tensor in weights[0].items() if ".experts." in name}
        self.assertEqual(len(experts), 2 * 5 * 3)
        for name, expected in experts.items():
            self.assertLess((weights[1][name] - expected).abs().max().item(), 1e-10, name)
            other = name.replace(".experts.4.", ".experts.0.")
            if other != name:
                self.assertGreater((weights[1][other] - expected).abs().max().item(), 1e-3, name)

    def test_text_comes_out_of_a_checkpoint_of_any_layout(self):
        texts = []
        for run, ranks, overrides in (("one", 1, []), ("four", 4, [*EXPERT, "--parallel.tensor=2"])):
            self.train(run, ranks, "--train.precision=fp64", *overrides, steps=5)
            texts.append(self.succeed("generate", "--checkpoint", run, "--prompt", "def", "--tokens", 20,
                                      "--temperature", 0))
        self.assertEqual(texts[0], texts[1])

    def test_metrics_and_a_heat_map_show_every_expert(self):
        self.train("run", 2, *EXPERT, "--model.capacity_factor=1", steps=6)
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        for line in lines:
            for layer in (0, 1):
                self.assertEqual(sum(line[f"expert_tokens/{layer}"]), 16 * 32 * 2)
                self.assertGreater(line[f"expert_max_violation/{layer}"], 0)
                self.assertGreater(line[f"dropped_share/{layer}"], 0)
                self.assertLess(line[f"router_entropy/{layer}"], math.log(5) + 1e-6)
                self.assertGreater(line[f"balance_loss/{layer}"], 0.5)
        svg = (self.folder / "run/experts.svg").read_text()
        self.assertIn("steps 1 to 6", svg)
        self.assertIn("layer 1, expert 4", svg)

    def test_an_expert_that_starves_is_named(self):
        out = self.succeed("train", "tiny.toml", "--ranks", 1, "--train.steps=4", *SPARSE, "--model.balance_loss=0",
                           "--experts.window=2", "--experts.starving=0.9")
        self.assertRegex(out, r"starving experts in steps 1 to 2: layer \d expert \d .* set model.balance_loss")

    def test_what_routers_learn_is_in_the_checkpoint(self):
        learning = ["--model.router_bias_rate=0.01", "--model.balance_over=batch", "--model.router_jitter=0.05",
                    "--optimizer.schedule=constant"]
        for ranks, layout in ((1, []), (2, EXPERT)):
            whole = self.train(f"whole{ranks}", ranks, *layout, *learning, steps=12)
            self.train(f"parts{ranks}", ranks, *layout, *learning, steps=5)
            self.train(f"parts{ranks}", ranks, *layout, *learning, steps=12)
            self.assertEqual(self.curve(f"parts{ranks}"), whole)

    def upcycle(self, run, output, *options):
        return self.succeed("checkpoint", "upcycle", run, "--output", output, "--model.experts=4", *options)

    def go_on(self, run, ranks, steps, *overrides):
        self.succeed("train", f"{run}/config.toml", "--ranks", ranks, f"--train.steps={steps}", *overrides)
        return self.curve(run)

    def test_an_upcycled_model_begins_with_the_loss_of_the_dense_one(self):
        for name, ranks, options in (("fp64", 2, ["--train.precision=fp64", "--parallel.zero=1"]),
                                     ("masters", 1, ["--train.precision=bf16", "--average.decay=0.9"])):
            with self.subTest(run=name):
                common = [*options, "--optimizer.schedule=constant"]
                self.succeed("train", "tiny.toml", "--ranks", ranks, "--train.steps=10", f"--output.folder={name}",
                             *common)
                out = self.upcycle(name, f"{name}-sparse", "--model.router_bias_rate=1e-3", "--model.dense_layers=1")
                self.assertRegex(out, "1 blocks with 4 experts")
                dense = self.go_on(name, ranks, 12, *common)
                sparse = self.go_on(f"{name}-sparse", 2, 12, "--parallel.data=2", "--parallel.expert=2", *common)
                first, other = float(dense[10][1]), float(sparse[0][1])
                self.assertEqual(sparse[0][0], 11)
                # fp64: a sum of two halves for one; bf16: one rounding of 2^-8 more in each block
                self.assertLessEqual(abs(first - other), (1e-14 if name == "fp64" else 2 ** -7) * first)
                self.assertNotEqual(dense[11][1], sparse[1][1])  # experts learn by themselves
        self.upcycle("fp64/checkpoints/step-000010", "noisy", "--noise=0.1")
        noisy = self.go_on("noisy", 2, 11)
        self.assertGreater(abs(float(noisy[0][1]) - float(self.curve("fp64")[10][1])), 1e-6)

    def test_what_cannot_be_upcycled_is_refused_in_one_line(self):
        self.succeed("train", "tiny.toml", "--train.steps=2", "--output.folder=dense")
        self.train("sparse", 1, steps=2)
        self.succeed("train", "tiny.toml", "--train.steps=2", "--output.folder=gpt2", "--model.family=gpt2",
                     "--model.kv_heads=4")
        self.succeed("train", "tiny.toml", "--train.steps=2", "--output.folder=factored", "--optimizer.name=adafactor")
        for words, run, options in ((["has 5 experts already"], "sparse", []), (["family gpt2"], "gpt2", []),
                                    (["model.expert_width is 24"], "dense", ["--model.expert_width=24"]),
                                    (["model.router_normalise is false"], "dense", ["--model.router_normalise=false"]),
                                    (["model.shared_experts is 1"], "dense", ["--model.shared_experts=1"]),
                                    (["model.expert_bias is true"], "dense", ["--model.expert_bias=true"]),
                                    (["model.width is 64", "leave it out"], "dense", ["--model.width=64"]),
                                    (["model.experts 0"], "dense", ["--model.experts=0"]),
                                    (["the optimizer keeps"], "factored", []),
                                    (["model.exprts"], "dense", ["--model.exprts=2"])):
            with self.subTest(run=run, options=options):
                self.fail_with(2, words, "checkpoint", "upcycle", run, "--output", "new", "--model.experts=4", *options)
                self.assertFalse((self.folder / "new").exists())

    def test_bad_experts_are_refused_in_one_line(self):
        for words, ranks, options in (
                (["parallel.expert is 6", "model.experts 5", "at most 5"], 6,
                 [*SPARSE, "--parallel.expert=6", "--train.uneven_batches=true"]),
                (["parallel.expert is 3", "divisor of the 4 ranks"], 4, [*SPARSE, "--parallel.expert=3"]),
                (["parallel.expert is 2", "model.experts 0"], 2, EXPERT),
                (["parallel.expert_chunk is 8", "model.experts 0"], 1, ["--parallel.expert_chunk=8"]),
                (["parallel.expert_replicas is 2", "parallel.expert 1"], 2, [*SPARSE, "--parallel.expert_replicas=2"]),
                (["parallel.expert_replicas is 6", "model.experts 5", "at most 5"], 2,
                 [*SPARSE, *EXPERT, "--parallel.expert_replicas=6"]),
                (["model.experts_per_token is 6", "model.experts 5"], 1, [*SPARSE, "--model.experts_per_token=6"]),
                (["model.expert_groups = 2", "divide"], 1, [*SPARSE, "--model.expert_groups=2"]),
                (["model.capacity_factor is 0.01", "at least 1"], 1, [*SPARSE, "--model.capacity_factor=0.01"]),
                (["model.router_jitter"], 1, [*SPARSE, "--model.router_jitter=2"]),
                (["model.experts 0", "such as 8"], 1, ["--model.family=mixtral"]),
                (["train.compression", "parallel.expert = 2"], 2, [*SPARSE, *EXPERT, "--train.compression=topk"]),
                (["train.reproducible", "parallel.expert = 2"], 2, [*SPARSE, *EXPERT, "--train.reproducible=true"])):
            with self.subTest(options=options):
                self.fail_with(2, words, "train", "tiny.toml", "--ranks", ranks, *options)
                self.assertFalse((self.folder / "run").exists())

    def test_a_run_does_not_resume_with_other_experts(self):
        self.train("run", 2, *EXPERT, steps=2)
        self.fail_with(2, ["model.experts", "5", "6"], "train", "tiny.toml", "--ranks", 1, "--train.steps=4",
                       "--output.folder=run", *SPARSE, "--model.experts=6")


if __name__ == "__main__":
    unittest.main(verbosity=2)
