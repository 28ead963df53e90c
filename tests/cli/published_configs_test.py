"""The config.json of much used open models, with the keys of the published files and small sizes: each is read from
transformers' folder and trains as there, or is refused by one line that says why."""
import json
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
import transformers

import twins_test
from hugging_face_models import LENGTH

STEPS = 3
COMMON = {"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 32,
          "initializer_range": 0.02, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 4,
          "num_key_value_heads": 2, "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": True,
          "vocab_size": 257}
QWEN_MOE = {"decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 24, "norm_topk_prob": True,
            "num_experts": 8, "num_experts_per_tok": 3, "output_router_logits": False, "router_aux_loss_coef": 0.001}
PUBLISHED = {
    "Llama-3.2-1B": {
        **COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "head_dim": 8,
        "max_position_embeddings": 131072, "mlp_bias": False, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": True},
    "Qwen2.5-0.5B": {
        **COMMON, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768,
        "max_window_layers": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
        "tie_word_embeddings": True, "use_mrope": False, "use_sliding_window": False},
    "Qwen3-0.6B": {
        **COMMON, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "head_dim": 12,
        "max_position_embeddings": 40960, "max_window_layers": 4, "rms_norm_eps": 1e-06, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False},
    "Qwen3-30B-A3B": {
        **COMMON, **QWEN_MOE, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": False,
        "head_dim": 12, "max_position_embeddings": 40960, "max_window_layers": 4, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
        "use_sliding_window": False},
    "Qwen1.5-MoE-A2.7B": {
        **COMMON, **QWEN_MOE, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
        "max_position_embeddings": 8192, "max_window_layers": 21, "norm_topk_prob": False, "num_experts_per_tok": 4,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "shared_expert_intermediate_size": 96,
        "sliding_window": 32768, "tie_word_embeddings": False, "use_sliding_window": False},
    "Mistral-7B-v0.3": {
        **COMMON, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False},
    "Mixtral-8x7B-v0.1": {
        **COMMON, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "max_position_embeddings": 32768,
        "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": False, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None, "tie_word_embeddings": False},
    "gemma-2-2b": {
        **COMMON, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attention_bias": False,
        "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "head_dim": 12,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
        "pad_token_id": 0, "query_pre_attn_scalar": 12, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
        "sliding_window": 4096},
    "gemma-3-1b-it": {
        **COMMON, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "attention_bias": False,
        "attn_logit_softcapping": None, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
        "final_logit_softcapping": None, "head_dim": 12, "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 32768, "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 12,
        "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000,
        "sliding_window": 8, "sliding_window_pattern": 3},
    "Phi-4-mini-instruct": {
        **COMMON, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": False,
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
        "embd_pdrop": 0.0, "full_attn_mod": 1, "head_dim": 8, "interpolate_factor": 1, "lm_head_bias": False,
        "max_position_embeddings": 131072, "mlp_bias": False, "original_max_position_embeddings": 4096, "pad_token_id": 2,
        "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
        "rope_scaling": {"long_factor": [1.0, 1.1, 1.5], "short_factor": [1.0, 1.0, 1.25], "type": "longrope"},
        "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True},
    "DeepSeek-V3": {
        **COMMON, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "attention_bias": False,
        "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001, "ep_size": 1,
        "first_k_dense_replace": 2, "kv_lora_rank": 12, "max_position_embeddings": 163840, "moe_intermediate_size": 24,
        "moe_layer_freq": 1, "n_group": 4, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_experts_per_tok": 4, "num_key_value_heads": 4, "num_nextn_predict_layers": 1, "pretraining_tp": 1,
        "q_lora_rank": 20, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "rms_norm_eps": 1e-06,
        "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                         "original_max_position_embeddings": 4096, "type": "yarn"},
        "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": True,
        "tie_word_embeddings": False, "topk_group": 2, "topk_method": "noaux_tc", "v_head_dim": 10},
    "gpt-oss-20b": {
        **COMMON, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": True,
        "experts_per_token": 4, "head_dim": 12, "initial_context_length": 4096,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "max_position_embeddings": 131072,
        "num_experts_per_tok": 4, "num_local_experts": 8, "output_router_logits": False, "pad_token_id": 0,
        "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                                                "original_max_position_embeddings": 4096, "rope_type": "yarn",
                                                "truncate": False},
        "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 8, "swiglu_limit": 7.0,
        "tie_word_embeddings": False},
    "granite-3.1-2b-instruct": {
        **COMMON, "architectures": ["GraniteForCausalLM"], "model_type": "granite", "attention_bias": False,
        "attention_dropout": 0.1, "attention_multiplier": 0.125, "bos_token_id": 0, "embedding_multiplier": 12.0,
        "eos_token_id": 0, "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": False, "pad_token_id": 0,
        "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 5000000.0,
        "tie_word_embeddings": True},
    "GLM-4-9B-0414": {
        **COMMON, "architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "attention_bias": True,
        "eos_token_id": [251, 252, 253], "head_dim": 8, "max_position_embeddings": 32768, "pad_token_id": 251,
        "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "OLMo-2-1124-7B": {
        **COMMON, "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "attention_bias": False,
        "eos_token_id": 251, "max_position_embeddings": 4096, "num_key_value_heads": 4, "pad_token_id": 252,
        "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False},
    "Olmo-3-7B-Instruct": {
        **COMMON, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "attention_bias": False,
        "eos_token_id": 251, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]),
        "max_position_embeddings": 65536, "num_key_value_heads": 4, "pad_token_id": 252, "rms_norm_eps": 1e-06,
        "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
                         "original_max_position_embeddings": 8192, "rope_type": "yarn"},
        "rope_theta": 500000, "sliding_window": 8, "tie_word_embeddings": False},
    "SmolLM3-3B": {
        **COMMON, "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "attention_bias": False,
        "layer_types": ["full_attention"] * 4, "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": False,
        "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0], "pad_token_id": 2, "pretraining_tp": 2,
        "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 5000000.0, "sliding_window": None,
        "use_sliding_window": False},
    "gpt2": {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 2,
        "embd_pdrop": 0.1, "eos_token_id": 2, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
        "n_ctx": 1024, "n_embd": 32, "n_head": 4, "n_layer": 4, "n_positions": LENGTH, "resid_pdrop": 0.1,
        "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
        "summary_type": "cls_index", "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 257},
}


class PublishedConfigs(twins_test.Twins):
    test_fifty_steps_have_the_losses_of_transformers = None
    steps = STEPS

    def save_published(self, name, keys):
        """A random model under that config.json, in the words of the published file."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(keys))
        torch.manual_seed(1)
        config = transformers.AutoConfig.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
        model.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps({**keys, "torch_dtype": "float32"} if "torch_dtype" in keys else keys))
        return folder

    def test_each_trains_as_in_transformers(self):
        inputs, targets = self.prepare_data()
        for name, keys in PUBLISHED.items():
            with self.subTest(name=name):
                self.save_published(name, keys)
                theirs = self.losses_of_transformers(name, inputs, targets)
                positions = ["--model.dropout=0"] if name == "gpt2" else [f"--model.sequence_length={LENGTH}"]
                ours = self.losses_of_ours(name, *positions)
                self.assertEqual(len(ours), STEPS)
                for a, b in zip(ours, theirs, strict=True):
                    self.assertLess(abs(a - b) / b, twins_test.TOLERANCE)

    def test_quantised_files_are_refused_by_name(self):
        folder = self.save_published("fp8", {**PUBLISHED["DeepSeek-V3"]})
        keys = {**PUBLISHED["DeepSeek-V3"], "quantization_config": {
            "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}}
        (folder / "config.json").write_text(json.dumps(keys))
        self.fail_with(2, ["quantization_config", "not quantised"], "checkpoint", "import", "fp8", "--output", "run")


if __name__ == "__main__":
    unittest.main(verbosity=2)
