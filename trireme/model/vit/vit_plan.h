// The placement and the initial values of a Vision Transformer's parameters.
#pragma once

#include <string_view>

#include "trireme/model/family/init.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/vit/vit_config.h"

namespace trireme::model {

// Every parameter of the whole model, in the order in which the network registers them, under the
// names in checkpoints of Hugging Face's ViTForImageClassification. Matrices are split by heads and
// feed-forward rows; embeddings, norms and classifier are whole on every rank.
// Throws: ConfigError when the model cannot be split over `tensor_ranks` ranks, or without classes
ModelPlan make_vit_plan(const VitConfig& config, int tensor_ranks);

// Norms 1, biases 0, all other parameters normal(0, 0.02).
Initialiser vit_initialiser(std::string_view name);

}  // namespace trireme::model
