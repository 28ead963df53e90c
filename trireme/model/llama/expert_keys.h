// The keys of config.json about experts, and about the loss that balances their use.
#pragma once

#include <string>
#include <vector>

#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

HuggingFaceKey expert_width_key(std::string name);

// The blocks that stay dense, a list in Qwen3-MoE.
HuggingFaceKey dense_blocks_key();

// transformers adds router_aux_loss_coef times its loss if output_router_logits is true, by default
// not. Its loss pools all L sparse layers and is k when all experts are used alike. That of
// model.balance_loss is 1 in each layer. They come after the keys that say which layers are sparse.
std::vector<HuggingFaceKey> balance_keys();

// The keys of config.json that give attention a window. Attention here has none, so a file may only
// have one that hides nothing: it is on no layer, or never shorter than a sequence.

// Mistral's and Mixtral's window, which is on every layer.
// missing: what the class assumes without the key
HuggingFaceKey window_key(HuggingFaceValue missing);

// A list of layers' kinds, of classes that have full attention only.
HuggingFaceKey layer_types_key();

// The keys of Qwen's windows, which are off by default: on the layers that layer_types says, or
// from max_window_layers on; with experts, on all. Kinds that have them need the check.
std::vector<HuggingFaceKey> qwen_window_keys();
void check_qwen_window(const JsonView& root, const ModelConfig& config);
void check_qwen_moe_window(const JsonView& root, const ModelConfig& config);

}  // namespace trireme::model
