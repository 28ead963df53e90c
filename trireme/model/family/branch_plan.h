// The parameters of the branches that decoders share, under transformers' names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/model/family/plan.h"

namespace trireme::model {

// Adds attention's projections, split by heads: with biases by model.attention_bias and
// model.attention_output_bias, with the sinks of model.attention_sinks, and with the norms of
// model.qk_norm, which are whole.
// prefix: of the names, such as "model.layers.0.self_attn."
void add_attention(ModelPlan& plan, const std::string& prefix);

// Adds a feed-forward with a gate, of width F, which the tensor axis splits at `cuts`.
void add_gated_feed_forward(ModelPlan& plan, const std::string& prefix, int64_t F,
                            const std::vector<int64_t>& cuts);

}  // namespace trireme::model
