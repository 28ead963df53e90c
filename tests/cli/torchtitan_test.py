"""Checkpoints of torchtitan, imported and trained on: the weights and losses of the same model from Hugging Face."""
import json
import pathlib
import subprocess
import sys
import unittest

import torch
from safetensors.torch import save_file

from hugging_face_models import SIZES
from import_test import TOLERANCE, ImportTest, mean_loss

HEADS, KV_HEADS, WIDTH = (SIZES[key] for key in ("num_attention_heads", "num_key_value_heads", "hidden_size"))
NAMES = {"model.embed_tokens": "tok_embeddings", "model.layers": "layers", "model.norm": "norm", "lm_head": "output",
         "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attention.wq",
         "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
         "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3"}


def torchtitan_tensors(tensors):
    """Its names, and the two rows that a rotary position turns next to each other."""
    result = {}
    for name, tensor in tensors.items():
        for theirs, own in NAMES.items():
            name = name.replace(theirs, own)
        if name.endswith((".wq.weight", ".wk.weight")):
            heads = HEADS if ".wq." in name else KV_HEADS
            tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        result[name] = tensor.contiguous()
    return result


def torchtitan_loss(weights, sequences, epsilon, base):
    """The model as torchtitan computes it: neighbouring elements of a head are the two parts of a complex number."""
    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weights[name + ".weight"]

    def linear(x, name):
        return x @ weights[name + ".weight"].T

    def turned(x):
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * angles).flatten(-2)

    tokens, targets = sequences[:, :-1], sequences[:, 1:]
    length, head = tokens.shape[1], WIDTH // HEADS
    frequencies = base ** (-torch.arange(0, head, 2) / head)
    angles = torch.polar(torch.ones(length, head // 2), torch.outer(torch.arange(length), frequencies))
    hidden = weights["tok_embeddings.weight"][tokens]
    for layer in range(SIZES["num_hidden_layers"]):
        block = f"layers.{layer}."
        x = norm(hidden, block + "attention_norm")
        q, k, v = (linear(x, f"{block}attention.w{part}").unflatten(-1, (heads, head)).transpose(1, 2)
                   for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (turned(k), v))
        mixed = torch.nn.functional.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
        hidden = hidden + linear(mixed.transpose(1, 2).flatten(2), block + "attention.wo")
        x = norm(hidden, block + "ffn_norm")
        gated = torch.nn.functional.silu(linear(x, block + "feed_forward.w1")) * linear(x, block + "feed_forward.w3")
        hidden = hidden + linear(gated, block + "feed_forward.w2")
    logits = linear(norm(hidden, "norm"), "output")
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), targets.flatten()).item()


class Torchtitan(ImportTest):
    def setUp(self):
        super().setUp()
        self.model = self.save("llama")
        self.weights = torchtitan_tensors(self.tensors("hf"))

    def write(self, folder, *options, weights=None):
        save_file(weights or self.weights, self.folder / "titan.safetensors")
        script = pathlib.Path(__file__).with_name("torchtitan_folder.py")
        subprocess.run([sys.executable, script, "titan.safetensors", folder, *options], cwd=self.folder, check=True)

    def test_a_folder_trains_on_as_the_same_weights_from_hugging_face(self):
        self.do_import("hf", "from hf")
        for folder, options in (("titan", []), ("older titan", ["--nested"])):
            self.write(folder, *options)
            self.assertEqual(len(list((self.folder / folder).glob("*.distcp"))), 2)
            run = f"from {folder}"
            report = json.loads(self.do_import(folder, run, "--config", "hf/config.json", "--json"))
            self.assertEqual(report["architecture"], "torchtitan's Transformer")
            self.assertEqual(report["tensors"], len(self.weights))
            same = json.loads(self.succeed("checkpoint", "diff", "from hf", run, "--json"))
            self.assertTrue(same["same"])
            self.assertEqual(same["compared"], len(self.weights))
        steps = ["--train.steps=3", "--optimizer.learning_rate=1e-2"]
        for run in ("from hf", "from titan"):
            self.tune(f"{run} tuned", 2, "--parallel.zero=3", *steps, init=run)
        self.assertEqual(self.curve("from titan tuned"), self.curve("from hf tuned"))
        self.assertEqual(len(self.curve("from titan tuned")), 3)

    def test_its_rotary_positions_turn_neighbours(self):
        sequences = self.sequences()
        with torch.no_grad():
            expected = torchtitan_loss(self.weights, sequences, SIZES["rms_norm_eps"], 500.0)
        self.assertLess(abs(mean_loss(self.model, sequences) - expected) / expected, TOLERANCE)
        self.write("titan")
        self.do_import("titan", "imported", "--config", "hf/config.json")
        self.tune("tuned", 1)
        self.assertLess(abs(self.validation_loss("tuned") - expected) / expected, TOLERANCE)

    def test_what_does_not_fit_is_one_line(self):
        command = ["checkpoint", "import", "titan", "--config", "hf/config.json", "--output", "out"]
        lacking = {name: tensor for name, tensor in self.weights.items() if name != "layers.1.attention.wk.weight"}
        self.write("titan", weights=lacking | {"layers.0.extra.weight": torch.ones(1)})
        self.fail_with(4, ["1 missing: model.layers.1.attention.wk.weight", "1 unexpected: layers.0.extra.weight"], *command)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
