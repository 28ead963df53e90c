"""Language models computed by Hugging Face's transformers: the reference of gemma_form_test.cc, bert_form_test.cc
and t5_test.cc.

Each FOLDER has config.json, which names the class, model.safetensors and tokens.safetensors (tokens, targets and, with a
decoder, decoder_tokens). Writes
FOLDER/result.safetensors (logits and the sum of cross-entropies) and, under the names of a checkpoint, every gradient of
that sum to FOLDER/gradients/model.safetensors.
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
import transformers
from safetensors.torch import load_file, save_file


def norm_of_t5(self, x):
    """T5's norm, whose own forward takes the mean of squares in fp32 whatever the dtype."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def compute(folder):
    architecture = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model, report = getattr(transformers, architecture).from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    wrong = {key: value for key, value in report.items() if value}
    if wrong:
        raise SystemExit(f"transformers does not load {folder}: {wrong}")
    given = load_file(f"{folder}/tokens.safetensors")
    # Its embedding never learns this token.
    model.get_input_embeddings().padding_idx = None
    decoder = {"decoder_input_ids": given["decoder_tokens"]} if "decoder_tokens" in given else {}
    logits = model(given["tokens"], **decoder).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), given["targets"].flatten(), reduction="sum")
    loss.backward()
    save_file({"logits": logits.detach().contiguous(), "loss": loss.detach()}, f"{folder}/result.safetensors")
    for parameter in model.parameters():
        parameter.data = parameter.grad
    model.save_pretrained(f"{folder}/gradients")


def main():
    torch.set_num_threads(1)
    transformers.models.t5.modeling_t5.T5LayerNorm.forward = norm_of_t5
    transformers.utils.logging.disable_progress_bar()
    for folder in sys.argv[1:]:
        compute(folder)


if __name__ == "__main__":
    main()
