// Llama and its relatives in Hugging Face's form, and in torchtitan's.
#pragma once

#include <vector>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/plan.h"

namespace trireme::model::inline internal {

// The class of transformers that computes the same: Llama, with attention_bias Qwen2, with qk_norm
// Qwen3; with experts Mixtral, with qk_norm Qwen3-MoE, with latent attention DeepSeek-V3.
// Throws: ConfigError when there is none, with the key in its way
HuggingFaceForm llama_form(const ModelPlan& plan);

// See Family::torchtitan_tensors(). Only Llama itself, dense and without biases.
std::vector<HuggingFaceTensor> llama_torchtitan_tensors(const ModelPlan& plan);

}  // namespace trireme::model::inline internal
