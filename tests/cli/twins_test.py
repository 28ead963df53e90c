"""Fifty steps beside Hugging Face's transformers, with torch's AdamW on the same sequences: the same losses."""
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers

from hugging_face_models import LENGTH
from import_test import ImportTest

STEPS = 50
SEQUENCES = 8  # all are the batch of each step, in any order
RATE, DECAY, BETAS, CLIP = 1e-3, 0.1, (0.9, 0.95), 1.0
FAMILIES = ["llama", "llama3", "window", "qwen2", "qwen3", "phi3", "gpt2", "gemma2", "gemma3", "mixtral", "qwen3 moe",
            "qwen2 moe", "deepseek", "smollm3", "granite", "olmo2", "olmo3", "glm4", "gpt oss"]
# Each step rounds its gradients by some 1e-7 of themselves, and AdamW turns that into as much of an update.
TOLERANCE = 1e-5


class Twins(ImportTest):
    steps = STEPS

    def prepare_data(self):
        (self.folder / "few.txt").write_text((self.folder / "text" / "0.txt").read_text()[:SEQUENCES * LENGTH])
        self.succeed("data", "prepare", "--input", "few.txt", "--tokenizer", "bytes", "--validation-fraction", 0,
                     "--output", "data/few")
        tokens = numpy.fromfile(self.folder / "data" / "few.bin", dtype=numpy.uint16).astype(numpy.int64)
        return (torch.tensor(part).view(SEQUENCES, LENGTH) for part in (tokens[:-1], tokens[1:]))

    def losses_of_transformers(self, folder, inputs, targets):
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / folder, attn_implementation="eager",
                                                                  dtype=torch.float32).eval()  # no dropout
        # The biases of all experts in one tensor are no matrix.
        named = list(model.named_parameters())
        matrices = [p for name, p in named if p.dim() > 1 and not name.endswith("bias")]
        vectors = [p for name, p in named if p.dim() == 1 or name.endswith("bias")]
        optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                                       {"params": vectors, "weight_decay": 0}], lr=RATE, betas=BETAS, eps=1e-8)
        losses = []
        for _ in range(self.steps):
            loss = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten())
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
        return losses

    def losses_of_ours(self, folder, *options):
        self.succeed("train", "--init", folder, f"--output.folder={folder} run", "--data.path=data/few",
                     f"--train.steps={self.steps}", f"--train.global_batch={SEQUENCES}", "--train.micro_batch=4",
                     f"--train.gradient_clip={CLIP}", f"--optimizer.learning_rate={RATE}",
                     "--optimizer.schedule=constant", "--optimizer.warmup_steps=0",
                     f"--optimizer.weight_decay={DECAY}", f"--optimizer.beta2={BETAS[1]}", *options)
        return [line["loss"] for line in self.metrics(f"{folder} run")]

    def test_fifty_steps_have_the_losses_of_transformers(self):
        inputs, targets = self.prepare_data()
        for family in FAMILIES:
            self.save(family, family)
            theirs = self.losses_of_transformers(family, inputs, targets)
            self.assertLess(theirs[-1], 0.95 * theirs[0], family)
            ours = self.losses_of_ours(family, "--model.dropout=0")
            self.assertEqual(len(ours), STEPS)
            largest = max(abs(a - b) / b for a, b in zip(ours, theirs))
            print(f"{family}: at most {largest:.1e}")
            for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                with self.subTest(family=family, step=step):
                    self.assertLess(abs(a - b) / b, TOLERANCE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
