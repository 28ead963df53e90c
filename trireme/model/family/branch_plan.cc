#include "trireme/model/family/branch_plan.h"

#include <span>

namespace trireme::model {

void add_attention(ModelPlan& plan, const std::string& prefix) {
  const ModelConfig& config = plan.config();
  const TensorCuts& cuts = plan.cuts();
  const int64_t D = config.width, H = config.head_width();
  const int64_t Q = config.heads * H, G = config.kv_heads * H;
  const auto add = [&](const std::string& name, int64_t rows, std::span<const int64_t> heads) {
    plan.add_split(prefix + name + ".weight", {rows, D}, 0, heads, H);
    if (config.attention.attention_bias)
      plan.add_split(prefix + name + ".bias", {rows}, 0, heads, H);
  };
  if (config.attention.attention_sinks)
    plan.add_split(prefix + "sinks", {config.heads}, 0, cuts.heads);
  add("q_proj", Q, cuts.heads);
  add("k_proj", G, cuts.kv_heads);
  add("v_proj", G, cuts.kv_heads);
  plan.add_split(prefix + "o_proj.weight", {D, Q}, 1, cuts.heads, H);
  if (config.attention.attention_output_bias) plan.add_whole(prefix + "o_proj.bias", {D});
  if (!config.attention.qk_norm) return;
  if (config.attention.norms_all_heads()) {
    plan.add_split(prefix + "q_norm.weight", {Q}, 0, cuts.heads, H);
    plan.add_split(prefix + "k_norm.weight", {G}, 0, cuts.kv_heads, H);
    return;
  }
  plan.add_whole(prefix + "q_norm.weight", {H});
  plan.add_whole(prefix + "k_norm.weight", {H});
}

void add_gated_feed_forward(ModelPlan& plan, const std::string& prefix, int64_t F,
                            const std::vector<int64_t>& cuts) {
  const int64_t D = plan.config().width;
  plan.add_split(prefix + "gate_proj.weight", {F, D}, 0, cuts);
  plan.add_split(prefix + "up_proj.weight", {F, D}, 0, cuts);
  plan.add_split(prefix + "down_proj.weight", {D, F}, 1, cuts);
}

void add_columns(ModelPlan& plan, const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& cuts, int64_t width) {
  plan.add_split(name + ".weight", shape, 0, cuts, width);
  plan.add_split(name + ".bias", {shape[0]}, 0, cuts, width);
}

void add_rows(ModelPlan& plan, const std::string& name, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& cuts, int64_t width) {
  plan.add_split(name + ".weight", shape, 1, cuts, width);
  plan.add_whole(name + ".bias", {shape[0]});
}

void add_layer_norm(ModelPlan& plan, const std::string& name) {
  const int64_t D = plan.config().width;
  plan.add_whole(name + ".weight", {D});
  plan.add_whole(name + ".bias", {D});
}

}  // namespace trireme::model
