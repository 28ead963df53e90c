"""Every model has probes at the boundaries of its units, and `trireme verify` names the unit of a wrong weight.

A run of each model goes on at another layout with one weight doubled, which a seed draws.
"""
import json
import os
import random
import re
import unittest

from program import ProgramTest
from tiny_problems import write_problems

BUG, USER = 1, 2
SEED = 1
DIFFUSION = """
[task]
name = "diffusion"
[model]
patch_size = 2
layers = 2
width = 24
heads = 4
[data]
path = "images"
[train]
steps = 20
global_batch = 16
micro_batch = 4
[optimizer]
warmup_steps = 2
"""
TENSOR = (2, ["tensor=2"])
EXPERT = (2, ["expert=2"])
DATA = (2, ["zero=1"])
MASKED = ["--model.kv_heads=4", "--data.masked_share=0.15"]


def rotary(*more, attention="input_layernorm|self_attn"):
    """Where a parameter of a rotary decoder shows first: a pattern of its name, and the probe."""
    return [(r"model\.embed_tokens\.weight", "embedding"), *more,
            (rf"(model\.layers\.\d+)\.({attention})\..*", r"\1.attention"),
            (r"(model\.layers\.\d+)\..*", r"\1"), (r"model\.norm\.weight", "norm"), (r"lm_head\.weight", "loss")]


LLAMA = rotary()
# The router reads what the norm before it gives.
MIXTRAL = rotary((r"(model\.layers\.\d+)\.(post_attention_layernorm|mlp\.gate)\..*", r"\1.router"))
GEMMA = rotary(attention="input_layernorm|self_attn|post_attention_layernorm")
GPT2 = [(r"transformer\.w[tp]e\.weight", "embedding"), (r"(transformer\.h\.\d+)\.(ln_1|attn)\..*", r"\1.attention"),
        (r"(transformer\.h\.\d+)\..*", r"\1"), (r"transformer\.ln_f\..*", "norm")]
# BERT's norms are behind the sums.
BERT = [(r"bert\.embeddings\..*", "embedding"),
        (r"(bert\.encoder\.layer\.\d+)\.attention\.(self\..*|output\.dense\..*)", r"\1.attention"),
        (r"(bert\.encoder\.layer\.\d+)\..*", r"\1"), (r"cls\.predictions\.transform\..*", "norm")]
T5 = [(r"shared\.weight", "embedding"),
      (r"(encoder|decoder)\.relative_attention_bias\.weight", r"\1.block.0.attention"),
      (r"((en|de)coder\.block\.\d+)\.layer\.0\..*", r"\1.attention"),
      (r"(decoder\.block\.\d+)\.layer\.1\..*", r"\1.cross_attention"),
      (r"((en|de)coder\.block\.\d+)\..*", r"\1"),
      (r"encoder\.final_layer_norm\..*", "memory"), (r"decoder\.final_layer_norm\..*", "norm"),
      (r"lm_head\.weight", "loss")]
VIT = [(r"vit\.embeddings\..*", "embedding"),
       (r"(vit\.encoder\.layer\.\d+)\.(layernorm_before|attention)\..*", r"\1.attention"),
       (r"(vit\.encoder\.layer\.\d+)\..*", r"\1"), (r"vit\.layernorm\..*", "norm"), (r"classifier\..*", "logits")]
# A block's product for the conditioning shifts and scales what attention reads.
DIT = [(r"pos_embed\..*", "embedding"), (r"emb\..*", "conditioning"),
       (r"(transformer_blocks\.\d+)\.(norm1|attn1)\..*", r"\1.attention"),
       (r"(transformer_blocks\.\d+)\..*", r"\1"), (r"proj_out_[12]\..*", "norm")]
CLICKS = [(r"(bottom|cross|top|deep|wide)\..*", r"\1")]

LANGUAGE = {
    "llama": ("tiny.toml", [], TENSOR, LLAMA),
    "mixtral": ("tiny.toml", ["--model.family=mixtral", "--model.experts=4"], EXPERT, MIXTRAL),
    "gemma": ("tiny.toml", ["--model.family=gemma"], TENSOR, GEMMA),
    "gpt2": ("tiny.toml", ["--model.family=gpt2", "--model.kv_heads=4"], TENSOR, GPT2),
    "bert": ("tiny.toml", ["--model.family=bert", "--data.mask_token=257", *MASKED], TENSOR, BERT),
    "t5": ("tiny.toml", ["--model.family=t5", "--model.decoder_layers=2", "--data.sentinel_token=270",
                         "--model.vocab_size=271", *MASKED], TENSOR, T5),
}
OTHERS = {
    "vit": ("vision.toml", [], TENSOR, VIT),
    "dit": ("diffusion.toml", [], TENSOR, DIT),
    "dlrm": ("clicks.toml", ["--model.family=dlrm"], DATA, CLICKS),
    "dlrm-dcnv2": ("clicks.toml", ["--model.family=dlrm-dcnv2", "--model.cross_rank=4"], DATA, CLICKS),
    "wide-deep": ("clicks.toml", ["--model.family=wide-deep"], DATA, CLICKS),
}


def probe_of(parameter, places):
    for pattern, probe in places:
        if found := re.fullmatch(pattern, parameter):
            return found.expand(probe)
    raise KeyError(parameter)


class ModelsTest(ProgramTest):
    def prepare(self):
        write_problems(self.folder, self.succeed)
        (self.folder / "diffusion.toml").write_text(DIFFUSION)
        self.program = os.environ["TRIREME_OWN_CALLBACK"]

    def weights(self, run):
        """The names of the parameters that no bias is: many biases are zero, or cancel in a softmax."""
        manifest = json.loads((self.folder / run / "gradients/step-000001/manifest.json").read_text())
        return sorted(name for name in manifest["state"]["parameters"] if not name.endswith("bias"))

    def check(self, name, config, keys, layout, places):
        # After some steps no weight is zero.
        self.succeed("train", config, *keys, "--record.gradients=3", "--record.end=true", "--checkpoint.interval=3",
                     f"--output.folder={name}")
        weights = self.weights(name)
        drawn = random.Random(f"{SEED} {name}").choice(weights)
        ranks, words = layout[0], [word for key in layout[1] for word in ("--layout", key)]
        result = self.run_program("verify", name, "--json", *words, "--ranks-b", ranks, "--steps", 1, "--output",
                                  f"twins-{name}", "--b", "mistake.kind=weight", "--b", f"mistake.parameter={drawn}")
        self.assertEqual(result.returncode, BUG, result.stdout + result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual((found["first"]["kind"], found["first"]["name"]), ("activation", probe_of(drawn, places)), drawn)
        self.assertEqual(found["left_out"], [])
        probes = {probe["name"] for probe in found["probes"] + found["same"] if probe["kind"] == "activation"}
        self.assertLessEqual({probe_of(weight, places) for weight in weights}, probes)


class Language(ModelsTest):
    def test_the_unit_of_a_wrong_weight_is_named(self):
        for name, model in LANGUAGE.items():
            with self.subTest(name):
                self.check(name, *model)


class Others(ModelsTest):
    def test_the_unit_of_a_wrong_weight_is_named(self):
        for name, model in OTHERS.items():
            with self.subTest(name):
                self.check(name, *model)

    def test_sides_with_batch_norm_need_the_same_samples_in_a_forward(self):
        words = ["verify", "vision.toml", "--model.family=resnet18", "--model.stem=small", "--steps", 1, "--ranks-b", 2]
        given = ["--a", "train.micro_batch=16", "--b", "train.micro_batch=8"]
        self.fail_with(USER, ["batch norm", "of 4 samples in A, of 4 x 2 samples in B", " ".join(given)], *words)
        # Forwards of as many samples, but of others.
        self.fail_with(USER, ["of 8 samples in A, of 4 x 2 samples in B"], *words, "--a", "train.micro_batch=8")
        self.fail_with(USER, ["chosen by the planner in B"], *words, "--b", "train.micro_batch=auto")
        self.assertFalse((self.folder / "runs").exists())
        result = self.run_program(*words, *given, "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(json.loads(result.stdout)["finding"], ("rounding", "same"))


if __name__ == "__main__":
    unittest.main()
