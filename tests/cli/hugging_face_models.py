"""Small models of transformers' classes, none of whose options is a default: a key that is overlooked would show."""
import torch
import transformers

LENGTH = 32
SIZES = {"vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": LENGTH,
         "rms_norm_eps": 1e-4, "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
EXPERTS = {"num_experts_per_tok": 3, "moe_intermediate_size": 24}
FAMILIES = {
    "llama": ("Llama", {}),
    "tied llama": ("Llama", {"tie_word_embeddings": True}),
    "wide heads": ("Llama", {"head_dim": 12}),
    "mistral": ("Mistral", {"sliding_window": LENGTH}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 12}),
    "mixtral": ("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3}),
    "qwen3 moe": ("Qwen3Moe", {**EXPERTS, "num_experts": 5, "norm_topk_prob": True, "num_hidden_layers": 3,
                               "mlp_only_layers": [0]}),
    "deepseek": ("DeepseekV3", {**EXPERTS, "num_key_value_heads": 4, "n_routed_experts": 8, "n_shared_experts": 2,
                                "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "kv_lora_rank": 12,
                                "q_lora_rank": 20, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
                                "routed_scaling_factor": 1.5, "rope_interleave": False}),
    "gpt2": ("GPT2", {}),
}
FAMILIES["deepseek pairs"] = ("DeepseekV3", {**FAMILIES["deepseek"][1], "rope_interleave": True, "q_lora_rank": None})
FAMILIES["phi3"] = ("Phi3", {"pad_token_id": None, "original_max_position_embeddings": LENGTH // 2, "rope_parameters": {
    "rope_type": "longrope", "rope_theta": 500.0, "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.25],
    "long_factor": [1.5, 3.0]}})
# Scores and logits are well into their caps.
FAMILIES["gemma2"] = ("Gemma2", {"head_dim": 12, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0,
                                 "final_logit_softcapping": 4.0, "sliding_window": 5})
FAMILIES["gemma3"] = ("Gemma3", {"head_dim": 12, "query_pre_attn_scalar": 20, "sliding_window": 5, "num_hidden_layers": 3,
                                 "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                                 "rope_parameters": {
                                     "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0},
                                     "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}})
FAMILIES["smollm3"] = ("SmolLM3", {"pad_token_id": None, "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1],
                                   "tie_word_embeddings": False})
FAMILIES["granite"] = ("Granite", {"embedding_multiplier": 3.5, "residual_multiplier": 0.22, "logits_scaling": 1.5,
                                   "attention_multiplier": 0.2})
FAMILIES["olmo2"] = ("Olmo2", {"pad_token_id": None, "head_dim": 12})
FAMILIES["olmo3"] = ("Olmo3", {"pad_token_id": None, "sliding_window": 5, "layer_types": [
    "sliding_attention", "full_attention"], "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16},
        "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}})
FAMILIES["glm4"] = ("Glm4", {"pad_token_id": None, "head_dim": 12, "rope_parameters": {
    "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}})
FAMILIES["qwen2 moe"] = ("Qwen2Moe", {**EXPERTS, "num_experts": 5, "num_hidden_layers": 4, "mlp_only_layers": [0],
                                      "decoder_sparse_step": 2, "shared_expert_intermediate_size": 48})
# Gates and ups are well into the limit, and yarn's bounds are not whole.
FAMILIES["gpt oss"] = ("GptOss", {"num_local_experts": 5, "num_experts_per_tok": 3, "head_dim": 12, "sliding_window": 5,
                                  "swiglu_limit": 0.3, "rope_parameters": {
                                      "rope_type": "yarn", "rope_theta": 500.0, "factor": 2.0, "truncate": False,
                                      "beta_fast": 4.0, "beta_slow": 1.0,
                                      "original_max_position_embeddings": LENGTH // 2}})
TEXT_CONFIG = {"Gemma3": "Gemma3Text"}  # classes whose config has another name


def scaled(rope_type, **members):
    return {"rope_parameters": {"rope_type": rope_type, "rope_theta": 500.0, **members}}


ORIGINAL = {"original_max_position_embeddings": LENGTH // 2}
# Each scaling of rotary positions, for sequences of twice the length of the pretraining.
SCALINGS = {
    "linear": ("Llama", scaled("linear", factor=2.0)),
    "llama3": ("Llama", scaled("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0, **ORIGINAL)),
    "dynamic": ("Llama", {**scaled("dynamic", factor=2.0), "max_position_embeddings": LENGTH // 2}),
    "longrope": ("Qwen2", scaled("longrope", factor=2.0, short_factor=[1.0, 1.25, 1.5, 2.0],
                                 long_factor=[1.5, 2.0, 3.0, 4.0], **ORIGINAL)),
    "yarn": ("Qwen3", scaled("yarn", factor=2.0, beta_fast=4.0, **ORIGINAL)),
    "yarn of deepseek": ("DeepseekV3", {**FAMILIES["deepseek"][1], **scaled(
        "yarn", factor=4.0, mscale=1.0, mscale_all_dim=0.5, beta_fast=4, beta_slow=1, **ORIGINAL)}),
    "yarn of glm4": ("Glm4", {**FAMILIES["glm4"][1], **scaled("yarn", factor=2.0, beta_fast=4.0, partial_rotary_factor=0.5,
                                                             **ORIGINAL)}),
}
# A window on all layers, on some, of Gemma, and with experts.
WINDOWS = {
    "window": ("Mistral", {"sliding_window": 5}),
    "windows of some layers": ("Qwen3", {"use_sliding_window": True, "sliding_window": 5,
                                         "layer_types": ["sliding_attention", "full_attention"]}),
    "windows of gemma2": FAMILIES["gemma2"],
    "windows of gemma3": FAMILIES["gemma3"],
    "layers without positions": ("SmolLM3", {**FAMILIES["smollm3"][1], "use_sliding_window": True, "sliding_window": 5}),
    "windows of gpt oss": FAMILIES["gpt oss"],
    "windows of qwen2 moe": ("Qwen2Moe", {**FAMILIES["qwen2 moe"][1], "use_sliding_window": True, "sliding_window": 5,
                                          "max_window_layers": 2}),
    "window of experts": ("Mixtral", {**FAMILIES["mixtral"][1], "sliding_window": 5}),
}
# What the file of a model says that has none.
PLAIN = {**dict.fromkeys(SCALINGS, {"rope_scaling": None}),
         **dict.fromkeys(WINDOWS, {"sliding_window": None}),
         "windows of qwen2 moe": {"use_sliding_window": False, "layer_types": None},
         "windows of some layers": {"use_sliding_window": False, "layer_types": None},
         "layers without positions": {"no_rope_layers": [1, 1, 1]},
         "windows of gpt oss": {"layer_types": ["full_attention"] * 2},
         "windows of gemma2": {"layer_types": ["full_attention"] * 2},
         "windows of gemma3": {"rope_local_base_freq": 500.0}}
# transformers writes into the object of rope_parameters: no other model may share it.
FAMILIES["phi3 of whole heads"] = ("Phi3", {"pad_token_id": None, "sliding_window": None,
                                            "rope_parameters": dict(SIZES["rope_parameters"])})
REWRITTEN = ("deepseek pairs", "phi3 of whole heads")  # exported with rows in another order; as a Llama
GPT2 = {"vocab_size": 257, "n_embd": 32, "n_inner": 80, "n_layer": 2, "n_head": 4, "n_positions": LENGTH,
        "layer_norm_epsilon": 1e-4, "bos_token_id": None, "eos_token_id": None}


def make_model(name, options):
    """A random model whose every weight matters."""
    config = getattr(transformers, TEXT_CONFIG.get(name, name) + "Config")(**(GPT2 if name == "GPT2" else {**SIZES, **options}))
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    torch.manual_seed(1)
    model = getattr(transformers, name + head)._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "norm" in key or ".ln_" in key:
                tensor.add_(0.1 * torch.randn_like(tensor))
            elif "inv_freq" not in key and "embed_scale" not in key:
                tensor.copy_(0.15 * torch.randn_like(tensor))
    return model
