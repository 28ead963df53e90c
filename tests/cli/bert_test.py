"""BERT: masked language modelling at every layout, from scratch and from transformers' files, and what it refuses."""
import json
import os
import subprocess
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

from program import CLUSTER, ProgramTest

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
BATCHES = os.environ["TRIREME_MASKED_BATCHES"]
LENGTH, VOCABULARY, MASK = 32, 260, 257
SHARE = 0.15
SEQUENCES = 8  # of an evaluation
STEPS, BATCH, RATE, DECAY, BETAS, CLIP = 50, 8, 1e-3, 0.1, (0.9, 0.95), 1.0  # of a twin
# As in import_test.py and twins_test.py.
TOLERANCE, TWIN_TOLERANCE = 125 * 2 ** -24, 1e-5
BERT = ["--model.family=bert", "--model.kv_heads=4", f"--data.masked_share={SHARE}", f"--data.mask_token={MASK}"]
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": LENGTH, "layer_norm_eps": 1e-4, "type_vocab_size": 3,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": None}
LAYOUTS = {
    "tensor": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "pipeline, zero 2": (4, ["--parallel.pipeline=2", "--parallel.zero=2"]),
    "context, zero 3": (4, ["--parallel.context=2", "--parallel.zero=3"]),
}


def randomised(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn_like(tensor)
            tensor.copy_(tensor + 0.1 * noise if "LayerNorm" in name else 0.15 * noise)
    return model.eval()


def cross_entropy(model, tokens, targets):
    return torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())


class BertTest(ProgramTest):
    def batches(self, steps, batch, seed=1, data="data/tiny"):
        """The tokens and targets of each step, or with steps = 0 of an evaluation."""
        arguments = (BATCHES, data, LENGTH, VOCABULARY, MASK, SHARE, seed, steps, batch)
        output = subprocess.run([str(each) for each in arguments], cwd=self.folder, stdout=subprocess.PIPE, check=True).stdout
        numbers = torch.from_numpy(numpy.frombuffer(output, dtype=numpy.int64).copy())
        return numbers.view(-1, 2, batch, LENGTH)

    def save(self, folder="hf", architecture="BertForMaskedLM", **options):
        model = randomised(getattr(transformers, architecture)._from_config(
            transformers.BertConfig(**{**SIZES, **options}), attn_implementation="eager"))
        model.save_pretrained(self.folder / folder)
        return model

    def train(self, run, ranks, *options, init=None):
        start = ["--init", init] if init else ["tiny.toml", *BERT, f"--model.vocab_size={VOCABULARY}"]
        self.succeed("train", *start, "--ranks", ranks, f"--output.folder={run}", "--data.path=data/tiny",
                     f"--train.evaluate_sequences={SEQUENCES}", *options)

    def evaluate(self, run, init, *options):
        """The validation loss after a step that changes nothing."""
        self.train(run, 1, "--train.steps=1", f"--train.global_batch={BATCH}", "--train.micro_batch=4",
                   "--train.evaluate_interval=1", "--optimizer.learning_rate=1e-30", f"--data.mask_token={MASK}",
                   *options, init=init)
        return self.metrics(run)[-1]["validation_loss"]

    def loss_of_transformers(self, model):
        tokens, targets = self.batches(0, SEQUENCES, data="data/tiny.validation")[0]
        with torch.no_grad():
            return cross_entropy(model.double(), tokens, targets).item()


class Training(BertTest):
    def test_every_layout_and_a_resumed_run_have_the_curve_of_one_rank(self):
        options = ["--train.precision=fp64", "--checkpoint.interval=3", "--train.evaluate_interval=3",
                   "--optimizer.schedule=constant"]
        self.train("one", 1, *options, "--train.steps=6")
        expected = self.metrics("one")
        for layout, (ranks, own) in LAYOUTS.items():
            with self.subTest(layout=layout):
                self.train(layout, ranks, *options, *own, "--train.steps=6")
                for a, b in zip(self.metrics(layout), expected, strict=True):
                    for key in ("loss", "grad_norm") + (("validation_loss",) if "validation_loss" in b else ()):
                        self.assertLess(abs(a[key] - b[key]), 1e-10 * b[key], key)
        # It goes on at another layout from the third step.
        self.train("cut", 1, *options, "--train.steps=3")
        self.train("cut", 2, *options, "--train.steps=6", "--parallel.tensor=2")
        for a, b in zip(self.metrics("cut"), expected, strict=True):
            self.assertLess(abs(a["loss"] - b["loss"]), 1e-10 * b["loss"])

    def test_it_learns(self):
        self.train("run", 1, "--train.steps=60", "--optimizer.learning_rate=5e-3", "--train.evaluate_interval=60")
        losses = [line["loss"] for line in self.metrics()]
        self.assertLess(sum(losses[-5:]), 0.7 * sum(losses[:5]))

    def test_the_mask_token_may_be_behind_the_tokenizers(self):
        self.succeed("train", "tiny.toml", *BERT, "--train.steps=1")
        config = (self.folder / "run" / "config.toml").read_text()
        self.assertIn("vocab_size = 258", config)
        self.assertIn("mask_token = 257", config)


class Transformers(BertTest):
    def test_files_keep_their_bits_and_their_loss(self):
        model = self.save()
        self.succeed("checkpoint", "import", "hf", "--output", "imported")
        self.succeed("checkpoint", "export", "imported", "--output", "exported")
        one, other = (load_file(self.folder / folder / "model.safetensors") for folder in ("hf", "exported"))
        self.assertEqual(set(one), set(other))
        for name, tensor in one.items():
            self.assertTrue(torch.equal(tensor, other[name]), name)
        again, info = transformers.BertForMaskedLM.from_pretrained(self.folder / "exported", output_loading_info=True)
        self.assertFalse(any(info.values()), info)
        expected = self.loss_of_transformers(model)
        # The same bits, but libtorch may round a sum otherwise by where it lies in memory.
        self.assertLess(abs(self.loss_of_transformers(again) - expected), 2 ** -40 * expected)
        for name, init, options in (("folder", "hf", []), ("run", "imported", ["imported/config.toml"])):
            with self.subTest(init=name):
                self.assertLess(abs(self.evaluate(f"from {name}", init, *options) - expected), TOLERANCE * expected)
        # The loss would show another epsilon.
        config = self.folder / "hf" / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "layer_norm_eps": 1e-2}))
        self.assertGreater(abs(self.evaluate("wrong", "hf") - expected), 4 * TOLERANCE * expected)

    def test_what_only_other_tasks_read_is_left_out(self):
        self.save(architecture="BertForPreTraining")
        path = self.folder / "hf" / "model.safetensors"
        tensors = load_file(path)
        self.assertIn("cls.seq_relationship.weight", tensors)
        # Names and copies of older files.
        tensors = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
                   for name, tensor in tensors.items()}
        tensors["bert.embeddings.position_ids"] = torch.arange(LENGTH).view(1, LENGTH)
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
        save_file(tensors, path, metadata={"format": "pt"})
        self.assertIn("4 tensors that only other tasks read are left out",
                      self.succeed("checkpoint", "import", "hf", "--output", "imported"))
        self.succeed("checkpoint", "export", "imported", "--output", "exported")
        exported = load_file(self.folder / "exported" / "model.safetensors")
        self.assertTrue(torch.equal(exported["bert.embeddings.LayerNorm.weight"],
                                    tensors["bert.embeddings.LayerNorm.gamma"]))
        for name in ("decoder.bias", "decoder.weight"):
            save_file({**tensors, f"cls.predictions.{name}": tensors[f"cls.predictions.{name}"] + 1}, path,
                      metadata={"format": "pt"})
            self.fail_with(4, [f"cls.predictions.{name}"], "checkpoint", "import", "hf", "--output", "other")
        save_file({name: tensor for name, tensor in tensors.items() if not name.startswith("cls.")}, path,
                  metadata={"format": "pt"})
        self.fail_with(4, ["missing", "cls.predictions.bias"], "checkpoint", "import", "hf", "--output", "other")

    def test_fifty_steps_have_the_losses_of_transformers(self):
        model = self.save().train()
        # Their gradients too: the norm of each step's.
        matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) == is_matrix] for is_matrix in (True, False))
        optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0}],
                                      lr=RATE, betas=BETAS, eps=1e-8)
        theirs = []
        for tokens, targets in self.batches(STEPS, BATCH):
            loss = cross_entropy(model, tokens, targets)
            optimizer.zero_grad()
            loss.backward()
            theirs.append((loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item()))
            optimizer.step()
        self.train("twin", 1, f"--train.steps={STEPS}", f"--train.global_batch={BATCH}", "--train.micro_batch=4",
                   f"--data.mask_token={MASK}", f"--train.gradient_clip={CLIP}", f"--optimizer.learning_rate={RATE}",
                   "--optimizer.schedule=constant", "--optimizer.warmup_steps=0", f"--optimizer.weight_decay={DECAY}",
                   f"--optimizer.beta2={BETAS[1]}", init="hf")
        for line, (loss, norm) in zip(self.metrics("twin"), theirs, strict=True):
            with self.subTest(step=line["step"]):
                self.assertLess(abs(line["loss"] - loss), TWIN_TOLERANCE * loss)
                self.assertLess(abs(line["grad_norm"] - norm), 10 * TWIN_TOLERANCE * norm)


class Refusals(BertTest):
    def test_what_does_not_fit_is_one_line(self):
        for words, options in (
                (["data.masked_share is 0", "bert"], BERT[:2]),
                (["data.masked_share is 0.15", "llama"], [BERT[2]]),
                (["data.mask_token is 257", "masked_share 0"], [BERT[3]]),
                (["data.mask_token is -1", "[MASK]", "257"], BERT[:3]),
                (["data.mask_token is 257", "model.vocab_size 257"], [*BERT, "--model.vocab_size=257"]),
                (["bert has no grouped queries"], ["--model.family=bert", "--model.kv_heads=2", BERT[2]]),
                (["bert has plain attention"], [*BERT, "--model.window=4"])):
            with self.subTest(words=words):
                self.fail_with(2, words, "train", "tiny.toml", *options)

    def test_it_continues_no_text(self):
        self.succeed("train", "tiny.toml", *BERT, "--train.steps=1")
        self.fail_with(2, ["bert", "restores hidden tokens", "export"], "generate", "--checkpoint", "run", "--prompt", "def")

    def test_it_is_planned_and_not_served(self):
        (self.folder / "cluster.toml").write_text(CLUSTER)
        given = ["simulate", "tiny.toml", "cluster.toml", *BERT, f"--model.vocab_size={VOCABULARY}"]
        self.succeed(*given)
        self.fail_with(2, ["model.family", "bert", "one after the other"], *given, "--serve")


if __name__ == "__main__":
    unittest.main(verbosity=2)
