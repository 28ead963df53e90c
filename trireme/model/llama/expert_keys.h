// The keys of config.json about experts, and about the loss that balances their use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

HuggingFaceKey expert_width_key(std::string name);

// The width of Qwen2-MoE's shared expert, here model.shared_experts of the experts' width: a
// multiple of it, or refused. It comes after that width.
HuggingFaceKey shared_width_key(std::string name, int64_t missing_width);

// The blocks that stay dense, a list in Qwen3-MoE.
HuggingFaceKey dense_blocks_key();

// transformers adds router_aux_loss_coef times its loss if output_router_logits is true, by default
// not. Its loss pools all L sparse layers and is k when all experts are used alike. That of
// model.balance_loss is 1 in each layer. They come after the keys that say which layers are sparse.
std::vector<HuggingFaceKey> balance_keys();

}  // namespace trireme::model
