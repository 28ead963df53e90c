"""Language models computed by Hugging Face's transformers: the reference of gemma_form_test.cc, bert_form_test.cc,
t5_test.cc and image_input_test.cc.

Each FOLDER has config.json, which names the class, model.safetensors and tokens.safetensors (tokens, targets and, with a
decoder, decoder_tokens; with a vision tower, images; lengths of texts that padding follows). Computes in the dtype that
config.json names. Writes FOLDER/result.safetensors (logits and the sum of cross-entropies) and, under the names of a
checkpoint, every gradient of that sum to FOLDER/gradients/model.safetensors.
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


class Exact:
    """Parts of Llama and its relatives whose own forwards compute in fp32 whatever the dtype."""

    KINDS = {"llama": "Llama", "olmo2": "Olmo2", "olmo3": "Olmo3", "qwen2_moe": "Qwen2Moe",
             "glm4": "Glm4"}  # model types and the names of their classes

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def angles(self, x, position_ids):
        H = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
        rope = self.config.rope_parameters
        R = int(H * rope.get("partial_rotary_factor", 1))
        rates = rope["rope_theta"] ** (-torch.arange(0, R, 2, dtype=torch.float64) / R)
        angle = position_ids[..., None] * torch.cat([rates, rates])
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    def angles_of_kind(self, x, position_ids, layer_type):
        """Those of OLMo 3, whose kinds of layers have scales of their own."""
        rates, factor = (getattr(self, f"{layer_type}_{name}") for name in ("inv_freq", "attention_scaling"))
        if self.rope_type[layer_type] == "default":
            R = 2 * len(rates)
            base = self.config.rope_parameters[layer_type]["rope_theta"]
            rates = base ** (-torch.arange(0, R, 2, dtype=torch.float64) / R)
        angle = position_ids[..., None] * torch.cat([rates, rates]).to(torch.float64)
        return (angle.cos() * factor).to(x.dtype), (angle.sin() * factor).to(x.dtype)

    def choice(self, x):
        """That of Qwen2-MoE's router."""
        logits = torch.nn.functional.linear(x.reshape(-1, self.hidden_dim), self.weight)
        weights, experts = logits.softmax(-1).topk(self.top_k, -1)
        if self.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        return logits, weights, experts


def compute(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    architecture = config.architectures[0]
    has_images = config.model_type == "llava"
    # Their softmax is in the dtype only where it is torch's own.
    is_exact = has_images or config.model_type in Exact.KINDS
    # Grouped products have no fp64.
    experts = {"experts_implementation": "eager"} if getattr(config, "num_experts", 0) else {}
    model, report = getattr(transformers, architecture).from_pretrained(
        folder, dtype=config.dtype, attn_implementation="sdpa" if is_exact else "eager", output_loading_info=True,
        **experts)
    wrong = {key: value for key, value in report.items() if value}
    if wrong:
        raise SystemExit(f"transformers does not load {folder}: {wrong}")
    given = load_file(f"{folder}/tokens.safetensors")
    # Its embedding never learns this token.
    model.get_input_embeddings().padding_idx = None
    decoder = {"decoder_input_ids": given["decoder_tokens"]} if "decoder_tokens" in given else {}
    if "lengths" in given:
        places = torch.arange(given["tokens"].shape[1])
        decoder["attention_mask"] = (places < given["lengths"][:, None]).long()
    images = {"pixel_values": given["images"].to(model.dtype)} if has_images else {}
    logits = model(given["tokens"], **decoder, **images).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), given["targets"].flatten(), reduction="sum")
    loss.backward()
    save_file({"logits": logits.detach().contiguous(), "loss": loss.detach()}, f"{folder}/result.safetensors")
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    model.save_pretrained(f"{folder}/gradients")


def main():
    torch.set_num_threads(1)
    transformers.models.t5.modeling_t5.T5LayerNorm.forward = norm_of_t5
    for kind, name in Exact.KINDS.items():
        module = getattr(getattr(transformers.models, kind), f"modeling_{kind}")
        getattr(module, f"{name}RMSNorm").forward = Exact.norm
        getattr(module, f"{name}RotaryEmbedding").forward = Exact.angles_of_kind if kind == "olmo3" else Exact.angles
    transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeTopKRouter.forward = Exact.choice
    transformers.utils.logging.disable_progress_bar()
    for folder in sys.argv[1:]:
        compute(folder)


if __name__ == "__main__":
    main()
