"""Adapters over weights that are frozen in fewer bits (lora.base), beside bitsandbytes and peft: codes, losses, files."""
import json
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import bitsandbytes.functional as bnb
import peft
import torch
import transformers
from safetensors.torch import load_file

import lora_test

LENGTH = lora_test.LENGTH
STEPS = lora_test.STEPS
# Rows are blocks of the 64 numbers that share a scale.
SIZES = {**lora_test.SIZES, "hidden_size": 64, "intermediate_size": 128, "head_dim": 32}
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class QloraTest(lora_test.LoraTest):
    def save(self, family="llama", folder="hf"):
        torch.manual_seed(1)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval().save_pretrained(self.folder / folder)

    def linear_layers(self, model):
        return {name: module for name, module in model.named_modules() if name.split(".")[-1] in LAYERS}

    def load_rounded(self):
        """The model with the weights that bitsandbytes' nf4 codes stand for."""
        model = self.load()
        with torch.no_grad():
            for module in self.linear_layers(model).values():
                codes, state = bnb.quantize_4bit(module.weight, blocksize=64, quant_type="nf4")
                module.weight.copy_(bnb.dequantize_4bit(codes, state))
        return model

    def saved(self, run):
        """All tensors of a run's last checkpoint, as they are kept."""
        self.succeed("checkpoint", "reshard", run, "--output", f"{run}-all", "--ranks", 1)
        folder = sorted((self.folder / f"{run}-all").rglob("*.safetensors"))
        return {name: tensor for file in folder for name, tensor in load_file(file).items()}


class Nf4(QloraTest):
    def test_codes_and_losses_are_those_of_bitsandbytes_and_peft(self):
        self.save()
        self.tune("start", 1, "--lora.base=nf4", "--optimizer.learning_rate=0", steps=1)
        kept = self.saved("start")
        for name, module in self.linear_layers(self.load()).items():
            codes, state = bnb.quantize_4bit(module.weight.data, blocksize=64, quant_type="nf4")
            self.assertNotIn(f"{name}.weight", kept)
            self.assertTrue(torch.equal(kept[f"{name}.weight_codes"].flatten(), codes.flatten()), name)
            self.assertTrue(torch.equal(kept[f"{name}.weight_scales"].flatten(), state.absmax), name)
        adapter = self.export("start", "adapter", "peft")
        # At the rate of the other adapters, roundings double every few steps, whatever the base.
        self.tune("run", 1, "--lora.base=nf4", "--optimizer.learning_rate=3e-3")
        lora_test.RATE, rate = 3e-3, lora_test.RATE
        self.addCleanup(setattr, lora_test, "RATE", rate)
        twin = peft.PeftModel.from_pretrained(self.load_rounded(), adapter, is_trainable=True)
        ours, theirs = self.metrics("run"), lora_test.Adapters.train_twin(self, twin)
        self.assertEqual(len(ours), STEPS)
        for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            self.assertLess(abs(a - b), lora_test.TOLERANCE * b, f"step {step}")
        self.assertLess(ours[-1], ours[0] - 0.3)

    def test_a_merged_model_is_that_of_the_codes_and_the_adapter_at_every_layout(self):
        self.save()
        for base in ("nf4", "int8", "bf16"):
            for name, (ranks, options) in lora_test.LAYOUTS.items():
                if base != "nf4" and name not in ("zero 3", "tensor, sequence"):
                    continue
                with self.subTest(base=base, layout=name):
                    run = f"{base}-{name.replace(', ', '-').replace(' ', '-')}"
                    self.tune(run, ranks, *options, f"--lora.base={base}", "--lora.targets=*.q_proj,*.down_proj", steps=5)
                    merged = self.load(self.export(run, f"{run}-merged", "hf").name)
                    adapted = peft.PeftModel.from_pretrained(self.base(base), self.export(run, f"{run}-adapter", "peft"))
                    self.assertGreater((self.logits(merged) - self.logits(self.base(base))).abs().max().item(), 1e-3)
                    self.assert_near(self.logits(merged), self.logits(adapted))

    def base(self, form):
        if form == "nf4":
            return self.load_rounded()
        model = self.load()
        with torch.no_grad():
            for module in self.linear_layers(model).values():
                blocks = module.weight.view(-1, 64)
                scales = blocks.abs().amax(1, keepdim=True) / 127
                rounded = module.weight.bfloat16() if form == "bf16" else (blocks / scales).round() * scales
                module.weight.copy_(rounded.view_as(module.weight))
        return model

    def test_a_resumed_run_is_the_run_and_generates(self):
        self.save()
        options = ("--lora.base=nf4", "--lora.dora=true", "--parallel.zero=3", "--average.decay=0.9")
        self.tune("whole", 2, *options, steps=6)
        self.tune("parts", 2, *options, steps=3)
        self.tune("parts", 1, *options[:2], options[3], steps=6)
        ours, theirs = self.metrics("parts"), self.metrics("whole")
        for a, b in zip(ours, theirs, strict=True):
            self.assertLess(abs(a - b), lora_test.TOLERANCE * b)
        self.assertTrue(self.succeed("generate", "--checkpoint", "whole", "--prompt", "def ", "--tokens", 4))
        for weights in ("", "--average"):
            self.succeed("checkpoint", "export", "whole", "--output", f"exported{weights}", "--format", "hf", *weights.split())
            self.assertEqual(self.logits(self.load(f"exported{weights}")).isfinite().all().item(), True)
        # A new run begins with the weights, the codes and the adapters of another.
        again = ("train", "whole/config.toml", "--init", "whole", "--ranks", 2, "--train.steps=1", "--optimizer.learning_rate=0")
        self.succeed(*again, "--output.folder=same")
        before, after = self.saved("whole"), self.saved("same")
        for name in before:
            if not name.startswith(("optimizer.", "callback")):
                self.assertTrue(torch.equal(before[name], after[name]), name)

    def test_a_run_of_trireme_is_frozen_in_fewer_bits(self):
        self.save()
        self.tune("full", 2, "--lora.rank=0", "--lora.alpha=16", steps=2)
        full = self.saved("full")
        self.succeed("train", "full/config.toml", "--init", "full", "--output.folder=tuned", "--train.steps=1", "--ranks", 2,
                     "--parallel.tensor=2", "--parallel.data=1", *lora_test.LORA, "--lora.base=nf4", "--optimizer.learning_rate=0")
        tuned = self.saved("tuned")
        for name in (name for name in full if name.startswith("model.") and name.endswith("_proj.weight")):
            codes, state = bnb.quantize_4bit(full[name], blocksize=64, quant_type="nf4")
            self.assertTrue(torch.equal(tuned[f"{name}_codes"].flatten(), codes.flatten()), name)
            self.assertTrue(torch.equal(tuned[f"{name}_scales"].flatten(), state.absmax), name)


class Refusals(QloraTest):
    def test_what_does_not_fit_is_one_line(self):
        self.save()
        self.refuse(2, ["lora.base is set", "lora.rank 0"], "--lora.base=nf4")
        self.refuse(2, ["lora.base", "run, bf16, int8, nf4"], *lora_test.LORA, "--lora.base=fp4")
        self.refuse(2, ["lora.base is nf4 and parallel.tensor 2", "is cut at column 32"], *lora_test.LORA, "--lora.base=nf4",
                    "--parallel.tensor=2", "--ranks", 2, init=self.narrow())
        self.refuse(2, ["has 100 columns", 'set lora.base to "bf16"'], *lora_test.LORA, "--lora.base=int8",
                    init=self.narrow(intermediate_size=100))
        model = self.load()
        with torch.no_grad():
            model.model.layers[1].self_attn.o_proj.weight[3, 5] = float("nan")
        model.save_pretrained(self.folder / "broken")
        self.refuse(4, ["model.layers.1.self_attn.o_proj.weight", "1 of the 8192 values", "NaN"], *lora_test.LORA, "--lora.base=nf4", init="broken")
        self.tune("nf4", 1, "--lora.base=nf4", steps=1)
        result = self.run_program("train", "nf4/config.toml", "--lora.base=int8", "--train.steps=2")
        self.assertEqual((result.returncode, "lora.base" in result.stderr), (2, True), result.stderr)

    def narrow(self, **sizes):
        config = transformers.LlamaConfig(**{**SIZES, "head_dim": 16, **sizes})
        transformers.LlamaForCausalLM(config).save_pretrained(self.folder / "narrow")
        return "narrow"


del QloraTest  # unittest would run it as well


if __name__ == "__main__":
    unittest.main()
