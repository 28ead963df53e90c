// The parameters of the branches that families share, under transformers' names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/model/family/plan.h"

namespace trireme::model {

// Adds attention's projections, split by heads: with biases by model.attention_bias and
// model.attention_output_bias, with the sinks of model.attention_sinks, and with the norms of
// model.qk_norm, which are whole, or split by heads as model.qk_norm_over says.
// prefix: of the names, such as "model.layers.0.self_attn."
void add_attention(ModelPlan& plan, const std::string& prefix);

// Adds a feed-forward with a gate, of width F, which the tensor axis splits at `cuts`.
void add_gated_feed_forward(ModelPlan& plan, const std::string& prefix, int64_t F,
                            const std::vector<int64_t>& cuts);

// Linear layers with biases, as in GPT-2 and BERT, whose weight [out, in] is `shape`, in heads of
// `width` or single rows.
// Outputs split at `cuts`: rows of the weight, and the bias.
void add_columns(ModelPlan& plan, const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& cuts, int64_t width = 1);
// Inputs split at `cuts`: columns of the weight; the bias is whole.
void add_rows(ModelPlan& plan, const std::string& name, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& cuts, int64_t width = 1);
// A LayerNorm over the model's width, with its bias.
void add_layer_norm(ModelPlan& plan, const std::string& name);

}  // namespace trireme::model
