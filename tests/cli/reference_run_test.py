"""`trireme verify --reference`: transformers' models, recorded in Python by trireme_torch, and deliberate mistakes in them."""
import contextlib
import importlib.util
import json
import os
import pathlib
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
import transformers
from safetensors.torch import load_file, save_file

from hugging_face_models import FAMILIES, make_model
from predictions import VISION, PredictTest, write_images

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
BUG, USER, BAD_CHECKPOINT = 1, 2, 4
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of data.normalise
# The file itself: the package has a compiled part, which only its own tests build.
SPEC = importlib.util.spec_from_file_location(
    "recorder", pathlib.Path(__file__).resolve().parents[2] / "python/trireme_torch/recorder.py")
recorder = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(recorder)

LANGUAGE = """
[model]
sequence_length = 32
dropout = 0
[data]
path = "data/tiny"
[train]
steps = 4
global_batch = 4
micro_batch = 2
[init]
folder = "hf"
"""


def cross_entropy(model, batch, targets=None):
    logits = model(batch["tokens"]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), (batch["targets"] if targets is None else targets).flatten())


def another_rope_base(model):
    rotary = model.model.rotary_emb
    size = rotary.inv_freq.numel()
    rotary.inv_freq = 10000.0 ** -(torch.arange(size, dtype=rotary.inv_freq.dtype) / size)


def another_epsilon(model):
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-3


def an_untied_head(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())


class ReferenceTest(PredictTest):
    def record(self, load, loss_of=cross_entropy, mistake=None, folder="reference"):
        batch = load_file(self.folder / "batch.safetensors")
        for precision, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
            with recorder.exact() if precision == "fp64" else contextlib.nullcontext():
                model = load(dtype)
                if mistake:
                    mistake(model)
                with recorder.record(model, self.folder / folder / precision) as step:
                    step.loss = loss_of(model, batch)
                    step.loss.backward()

    def verify(self, config, *words, folder="reference", code=0):
        self.number = getattr(self, "number", 0) + 1
        result = self.run_program("verify", config, "--reference", folder, "--output", f"compared{self.number}", "--json",
                                  *words)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def assert_named(self, found, kind, name):
        self.assertEqual(found["finding"], "bug")
        self.assertEqual((found["first"]["kind"], found["first"]["name"]), (kind, name))


class Language(ReferenceTest):
    def prepare(self):
        super().prepare()
        (self.folder / "a.toml").write_text(LANGUAGE)

    def save(self, family):
        name, options = FAMILIES[family]
        make_model(name, options).save_pretrained(self.folder / "hf")
        self.succeed("verify", "a.toml", "--batch", "batch.safetensors")
        return lambda dtype: transformers.AutoModelForCausalLM.from_pretrained(
            self.folder / "hf", dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()

    def check(self, family, mistake, kind, name, loss_of=cross_entropy):
        load = self.save(family)
        self.record(load)
        found = self.verify("a.toml")
        self.assertIn(found["finding"], ("rounding", "same"))
        self.assertGreater(found["compared"], 15)
        self.record(load, loss_of, mistake, folder="wrong")
        self.assert_named(self.verify("a.toml", folder="wrong", code=BUG), kind, name)

    def test_llama_and_another_rope_base(self):
        self.check("llama", another_rope_base, "activation", "model.layers.0")

    def test_gpt2_and_another_norm_epsilon(self):
        self.check("gpt2", another_epsilon, "activation", "transformer.h.0")

    def test_mixtral_and_shifted_labels(self):
        self.check("mixtral", None, "loss", "", lambda model, batch: cross_entropy(model, batch, batch["tokens"]))

    def test_a_tied_llama_and_an_untied_head(self):
        load = self.save("tied llama")
        self.record(load)
        self.assertIn(self.verify("a.toml")["finding"], ("rounding", "same"))
        # Files of weights with a head of its own are of another model, and so are these of gradients.
        self.record(load, mistake=an_untied_head, folder="wrong")
        self.fail_with(USER, ["model.tied_embedding is true", "tie_word_embeddings of wrong/fp32/gradients"], "verify",
                       "a.toml", "--reference", "wrong", "--output", "compared")

    def test_without_activations_the_loss_is_the_first(self):
        load = self.save("llama")
        self.record(load, mistake=another_rope_base)
        found = self.verify("a.toml", "--activations", 0, code=BUG)
        self.assert_named(found, "loss", "")
        self.assertNotIn("activation", {probe["kind"] for probe in found["probes"] + found["same"]})

    def test_what_is_damaged_or_does_not_fit_is_one_line(self):
        self.record(self.save("llama"))

        def refuse(expected, *words, code=USER):
            self.number = getattr(self, "number", 0) + 1
            self.fail_with(code, expected, "verify", "a.toml", "--reference", "reference", "--output",
                           f"refused{self.number}", *words)
        path = self.folder / "reference/fp32/gradients/model.safetensors"
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}  # not of the file that is replaced
        save_file({**tensors, "lm_head.weight": torch.zeros(3, 3)}, path, metadata={"format": "pt"})
        refuse(["lm_head.weight"], code=BAD_CHECKPOINT)
        save_file(tensors, path, metadata={"format": "pt"})
        (self.folder / "map.json").write_text('{"a.*": 3}')
        refuse(["map.json", "expected a text"], "--map", "map.json")
        (self.folder / "reference/fp64/step.json").unlink()
        refuse(["step.json", "is missing"])
        (self.folder / "reference/fp64").rename(self.folder / "away")
        refuse(["no folder fp64"])
        for words in (["a.toml"], ["--b", "parallel.tensor=2"], ["--ranks-b", 2]):
            refuse(["which has no B"], *words)
        refuse(["--tier 1"], "--tier", 3)
        self.fail_with(USER, ["--from-step is of a run's folder"], "verify", "a.toml", "--from-step", 3)
        self.fail_with(USER, ["batch.safetensors", "exists"], "verify", "a.toml", "--batch", "batch.safetensors")


class Vision(ReferenceTest):
    def prepare(self):
        write_images(self.folder / "images/train", 8, 16)
        write_images(self.folder / "images/validation", 3, 16, seed=2)
        (self.folder / "vision.toml").write_text(VISION)

    def test_vit_and_another_norm_epsilon(self):
        self.succeed("train", "vision.toml", "--output.folder=first", "--train.steps=1", "--checkpoint.interval=1",
                     "--train.evaluate_interval=0")
        self.succeed("checkpoint", "export", "first", "--output", "hf")
        words = ["--init.folder=first", "--train.evaluate_interval=0"]
        self.succeed("verify", "vision.toml", "--batch", "batch.safetensors", *words)

        def load(dtype):
            return transformers.ViTForImageClassification.from_pretrained(self.folder / "hf", dtype=dtype).eval()

        def loss_of(model, batch):
            mean, deviation = (torch.tensor(numbers, dtype=model.dtype).view(1, 3, 1, 1) for numbers in IMAGENET)
            logits = model((batch["image"].to(model.dtype) / 255 - mean) / deviation).logits
            return torch.nn.functional.cross_entropy(logits, batch["label"])
        self.record(load, loss_of)
        found = self.verify("vision.toml", *words)
        self.assertIn(found["finding"], ("rounding", "same"))
        names = {probe["name"] for probe in found["probes"] + found["same"]}
        self.assertLess({"embedding", "vit.encoder.layer.0", "norm", "logits",
                         "vit.encoder.layer.1.attention.attention.query.weight"}, names)
        self.record(load, loss_of, another_epsilon, folder="wrong")
        self.assert_named(self.verify("vision.toml", *words, folder="wrong", code=BUG), "activation", "vit.encoder.layer.0")


if __name__ == "__main__":
    unittest.main()
