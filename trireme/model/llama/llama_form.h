// Llama and its relatives in Hugging Face's form, and in torchtitan's: the model classes of Hugging
// Face's transformers that the llama and mixtral families can read, and their tensors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

// Kinds that compute the same as a model of this family. A Mistral without a window is a Llama.
extern const HuggingFaceKind kLlamaKind;
extern const HuggingFaceKind kMistralKind;
extern const HuggingFaceKind kQwen2Kind;
extern const HuggingFaceKind kQwen3Kind;
extern const HuggingFaceKind kPhi3Kind;
extern const HuggingFaceKind kSmolLm3Kind;
extern const HuggingFaceKind kGraniteKind;
extern const HuggingFaceKind kOlmo2Kind;
extern const HuggingFaceKind kOlmo3Kind;
extern const HuggingFaceKind kGlm4Kind;
extern const HuggingFaceKind kMixtralKind;
extern const HuggingFaceKind kQwen2MoeKind;
extern const HuggingFaceKind kQwen3MoeKind;
extern const HuggingFaceKind kDeepSeekKind;
extern const HuggingFaceKind kGptOssKind;
extern const HuggingFaceKind kLlavaKind;  // with a vision tower, which only a Llama has

// The name of our parameter `name` in files of LLaVA.
std::string llava_name(std::string_view name);

// All kinds that can be read, except those of mixtral_kinds().
std::span<const HuggingFaceKind* const> llama_kinds();
std::span<const HuggingFaceKind* const> mixtral_kinds();

// The class of transformers that computes the same: Llama, with a window Mistral, with
// attention_bias Qwen2, with qk_norm Qwen3, with rotary_share Phi-3, with rope_layers SmolLM3, with
// query_scalar or a scale Granite, with norms after its branches OLMo 2 or, with a window, OLMo 3,
// with norms before and after them GLM-4; with experts Mixtral, with qk_norm Qwen3-MoE, with
// shared_gate Qwen2-MoE, with latent attention DeepSeek-V3, with biases of experts GPT-OSS.
// Throws: ConfigError when there is none, with the key in its way
HuggingFaceForm llama_form(const ModelPlan& plan);

// See Family::joined_tensors(). Those of a Phi-3 that turns whole heads, which is a Llama.
std::vector<HuggingFaceTensor> llama_joined_tensors(const ModelPlan& plan);

// See Family::torchtitan_tensors(). Only Llama itself, dense and without biases.
std::vector<HuggingFaceTensor> llama_torchtitan_tensors(const ModelPlan& plan);

}  // namespace trireme::model
