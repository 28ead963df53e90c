// The keys of config.json that give attention a window.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

// A window of every layer: Mistral, Mixtral, Phi-3.
// missing: what the class assumes without the key
HuggingFaceKey window_key(HuggingFaceValue missing);

// That of a class without windows, which is not written: a model with one is another.
HuggingFaceKey no_window_key();

// A list of layers' kinds, of classes that have full attention only.
HuggingFaceKey layer_types_key();

// Qwen's windows, which are off by default: on the layers that layer_types says, or from
// max_window_layers on; with experts, on all. Kinds that have the keys take them at the end.
std::vector<HuggingFaceKey> qwen_window_keys();
void take_qwen_window(const JsonView& root, ModelConfig& config);
void take_qwen_moe_window(const JsonView& root, ModelConfig& config);
// Qwen2-MoE's: on the layers that layer_types says, or else on the first, third and so on of those
// before max_window_layers.
void take_qwen2_moe_window(const JsonView& root, ModelConfig& config);

// SmolLM3's: on the layers that layer_types says, or else on those without rotary positions, which
// no_rope_layers says, or else each one of no_rope_layer_interval. The keys of the window are
// qwen_window_keys(); these are the others.
std::vector<HuggingFaceKey> rotary_layers_keys();
void take_smollm3_layers(const JsonView& root, ModelConfig& config);

// GPT-OSS's: on the layers that layer_types says, or else on the first, third and so on. The keys
// are gemma_window_keys().
void take_gpt_oss_window(const JsonView& root, ModelConfig& config);

// Gemma's windows, which are always on: on the layers that layer_types says, or else on all but
// each second one, or in Gemma 3 on all but each one of sliding_window_pattern.
std::vector<HuggingFaceKey> gemma_window_keys();
void take_gemma2_window(const JsonView& root, ModelConfig& config);
void take_gemma3_window(const JsonView& root, ModelConfig& config);
// OLMo 3's, the same with each fourth one. The keys are gemma_window_keys().
void take_olmo3_window(const JsonView& root, ModelConfig& config);

}  // namespace trireme::model
