"""Low-rank adapters of the stacked weights of experts (lora.targets), beside the package peft."""
import json
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import peft
import torch
import transformers
from safetensors.torch import load_file

import hugging_face_models
import lora_test

BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
LINEAR = "*.q_proj,*.o_proj"
EXPERTS = (f"--lora.targets={LINEAR},*.experts.gate_up_proj,*.experts.down_proj",)
LAYOUTS = {
    "experts": (2, ["--parallel.expert=2"]),
    "experts, tensor": (4, ["--parallel.expert=2", "--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "zero 3, bf16": (2, ["--parallel.zero=3", "--train.precision=bf16"]),
    "pipeline, nf4": (2, ["--parallel.pipeline=2", "--lora.base=bf16"]),
}


class ExpertsTest(lora_test.LoraTest):
    def save(self, family, folder="hf"):
        self.model = hugging_face_models.make_model(*hugging_face_models.FAMILIES[family])
        self.model.save_pretrained(self.folder / folder)

    def make_theirs(self, folder, **options):
        """An adapter of peft whose every factor matters."""
        config = peft.LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "o_proj"], "target_parameters": BOTH,
                                    "task_type": "CAUSAL_LM", "init_lora_weights": False, **options})
        torch.manual_seed(2)
        adapted = peft.get_peft_model(self.load(), config)
        adapted.save_pretrained(self.folder / folder)
        return adapted

    def start_from(self, adapter, run, ranks, *options):
        self.tune(run, ranks, f"--lora.init={adapter}", "--optimizer.learning_rate=0", *options, steps=1)


class Adapters(ExpertsTest):
    def test_the_losses_are_those_of_peft_from_the_same_adapters(self):
        for family in ("mixtral", "qwen3 moe"):
            with self.subTest(family=family):
                self.setUp()
                self.save(family)
                self.make_theirs("theirs", init_lora_weights=True)
                self.tune("run", 2, *EXPERTS, "--lora.init=theirs", "--parallel.expert=2")
                theirs = self.train_twin(peft.PeftModel.from_pretrained(self.load(), self.folder / "theirs", is_trainable=True))
                ours = self.metrics("run")
                self.assertEqual(len(ours), lora_test.STEPS)
                largest = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
                print(f"{family}: losses from {ours[0]:.3f} to {ours[-1]:.3f}, largest relative difference {largest:.1e}")
                self.assertLess(largest, lora_test.TOLERANCE)
                self.assertLess(ours[-1], ours[0] - 0.3)

    def test_peft_reads_them_and_a_merged_model_is_the_same_at_every_layout(self):
        for family in ("mixtral", "qwen2 moe", "gpt oss"):
            self.save(family)
            for name, (ranks, options) in LAYOUTS.items():
                if family != "mixtral" and name != "experts, tensor":
                    continue
                with self.subTest(family=family, layout=name):
                    run = f"{family}-{name}".replace(" ", "-").replace(",", "")
                    self.tune(run, ranks, *options, *EXPERTS, steps=5)
                    adapter = self.export(run, f"{run}-adapter", "peft")
                    merged = self.load(self.export(run, f"{run}-merged", "hf").name)
                    config = json.loads((adapter / "adapter_config.json").read_text())
                    self.assertEqual(config["target_parameters"], sorted(BOTH))
                    adapted = peft.PeftModel.from_pretrained(self.load(), adapter)
                    self.assertEqual(set(load_file(adapter / "adapter_model.safetensors")),
                                     {key.replace(".default", "") for key in adapted.state_dict() if "lora_" in key})
                    if "bf16" in name or "nf4" in name:
                        continue  # the merged model is rounded
                    self.assertGreater((self.logits(merged) - self.logits(self.load())).abs().max().item(), 1e-3)
                    self.assert_near(self.logits(merged), self.logits(adapted))

    def test_an_adapter_of_peft_is_the_same_model_here_and_comes_back_with_its_bits(self):
        cases = (("mixtral", BOTH), ("mixtral", BOTH[:1]), ("mixtral", BOTH[1:]), ("qwen3 moe", BOTH),
                 ("gpt oss", BOTH), ("gpt oss", BOTH[:1]), ("deepseek pairs", BOTH))
        for i, (family, parameters) in enumerate(cases):
            with self.subTest(family=family, parameters=parameters):
                self.save(family)
                # Without linear layers: DeepSeek's may be exported in no other order than ours.
                options = {"target_modules": []} if family == "deepseek pairs" else {}
                adapted = self.make_theirs(f"theirs{i}", target_parameters=parameters, **options)
                patterns = ",".join([*([] if options else [LINEAR]), *(f"*.{name}" for name in parameters)])
                self.start_from(f"theirs{i}", f"ours{i}", 2, "--parallel.expert=2", f"--lora.targets={patterns}")
                merged = self.load(self.export(f"ours{i}", f"merged{i}", "hf").name)
                self.assertGreater((self.logits(merged) - self.logits(self.load())).abs().max().item(), 1e-3)
                self.assert_near(self.logits(merged), self.logits(adapted))
                back = load_file(self.export(f"ours{i}", f"back{i}", "peft") / "adapter_model.safetensors")
                theirs = load_file(self.folder / f"theirs{i}" / "adapter_model.safetensors")
                self.assertEqual(set(back), set(theirs))
                for name, tensor in theirs.items():
                    self.assertTrue(torch.equal(back[name], tensor), name)

    def test_frozen_stacks_have_no_states_and_a_resumed_run_is_the_run(self):
        self.save("mixtral")
        options = ("--parallel.expert=2", "--parallel.zero=1", "--parallel.expert_replicas=1", *EXPERTS)
        self.tune("whole", 2, *options, steps=6)
        for steps in (3, 6):
            self.tune("parts", 2, *options, steps=steps)
        self.assertEqual(self.metrics("parts"), self.metrics("whole"))
        report = json.loads(self.succeed("checkpoint", "inspect", "whole", "--json"))
        states = {tensor["name"] for tensor in report["tensors"] if tensor["name"].startswith("optimizer.")}
        self.assertEqual(len(states), 2 * 2 * (4 + 5))  # two layers: A and B of two layers, and of the stacks
        self.assertTrue(all(".lora_" in name for name in states), states)
        self.assertTrue(self.succeed("generate", "--checkpoint", "whole", "--prompt", "def ", "--tokens", 4))


class Refusals(ExpertsTest):
    def test_what_does_not_fit_is_one_line(self):
        self.save("mixtral")
        own = [*lora_test.LORA, *EXPERTS]
        self.refuse(2, ['lora.targets has "*.experts.gate_up_proj"', "neither dropout nor magnitudes"], *own, "--lora.dropout=0.1")
        self.refuse(2, ['lora.targets has "*.experts.gate_up_proj"', "neither dropout nor magnitudes"], *own, "--lora.dora=true")
        self.refuse(2, ['"*.experts.w1"', "matches no stacked weights of experts", "model.layers.0.mlp.experts.gate_up_proj"],
                    *own[:-1], "--lora.targets=*,*.experts.w1")
        self.make_theirs("theirs")
        init = [*own, "--lora.init=theirs"]
        self.refuse(2, ["lora.rank is 2", "has 4 rows"], *init, "--lora.rank=2")
        self.make_theirs("stacks", target_modules=[])
        self.refuse(2, ["lora.rank is 2", "has 20 rows for 5 experts; set it to 4"], *own, "--lora.init=stacks",
                    "--lora.targets=*.experts.*", "--lora.rank=2")
        self.refuse(2, ["set lora.alpha to 8"], *init, "--lora.alpha=4")
        self.refuse(4, ["unexpected", "lora.targets"], *init, f"--lora.targets={LINEAR}")
        self.tune("also", 1, *EXPERTS, "--lora.also_train=*.experts.down_proj", steps=1)
        result = self.run_program("checkpoint", "export", "also", "--output", "none", "--format", "peft")
        self.assertEqual((result.returncode, len(result.stderr.splitlines())), (2, 1), result.stderr)
        self.assertIn("peft saves weights and biases of whole modules only", result.stderr)


if __name__ == "__main__":
    unittest.main()
