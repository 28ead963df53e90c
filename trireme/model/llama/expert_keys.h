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

}  // namespace trireme::model
