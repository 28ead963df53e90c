"""A Vision Transformer computed by Hugging Face's transformers: the reference of vit_test.cc.

FOLDER/model has config.json and model.safetensors, FOLDER/input.safetensors images and labels. Writes
FOLDER/logits.safetensors (logits and the sum of cross-entropies) and, under the names of a checkpoint,
every gradient of that sum to FOLDER/gradients/model.safetensors.
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
import transformers
from safetensors.torch import load_file, save_file


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    # Its "eager" attention computes softmax in fp32; torch's keeps fp64.
    model, report = transformers.ViTForImageClassification.from_pretrained(
        f"{folder}/model", dtype=torch.float64, attn_implementation="sdpa", output_loading_info=True)
    wrong = {key: value for key, value in report.items() if value}
    if wrong:
        raise SystemExit(f"transformers does not load the weights: {wrong}")
    given = load_file(f"{folder}/input.safetensors")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        logits = model(given["images"]).logits
        loss = torch.nn.functional.cross_entropy(logits, given["labels"], reduction="sum")
        loss.backward()
    save_file({"logits": logits.detach(), "loss": loss.detach()}, f"{folder}/logits.safetensors")
    for parameter in model.parameters():
        parameter.data = parameter.grad
    model.save_pretrained(f"{folder}/gradients")


if __name__ == "__main__":
    main()
