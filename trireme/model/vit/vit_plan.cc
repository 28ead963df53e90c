#include "trireme/model/vit/vit_plan.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme::model {

ModelPlan make_vit_plan(const VitConfig& config, int tensor_ranks) {
  TRIREME_CHECK(config.classes > 0, "model.classes = ", config.classes,
                "; expected at least 1: set it, or take it from the data before building");
  ModelPlan plan(config.block_config(), {.tensor = tensor_ranks});
  const TensorCuts& cuts = plan.cuts();
  const int64_t D = config.width, F = config.ffn_width, H = D / config.heads;
  const int64_t C = config.channels, P = config.patch_size;
  const auto add_norm = [&](const std::string& name) {
    plan.add_whole(name + ".weight", {D});
    plan.add_whole(name + ".bias", {D});
  };
  plan.add_whole("vit.embeddings.cls_token", {1, 1, D});
  plan.add_whole("vit.embeddings.position_embeddings", {1, config.num_tokens(), D});
  plan.add_whole("vit.embeddings.patch_embeddings.projection.weight", {D, C, P, P});
  plan.add_whole("vit.embeddings.patch_embeddings.projection.bias", {D});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = concat("vit.encoder.layer.", layer, ".");
    add_norm(block + "layernorm_before");
    for (const char* name : {"query", "key", "value"}) {
      plan.add_split(concat(block, "attention.attention.", name, ".weight"), {D, D}, 0, cuts.heads,
                     H);
      plan.add_split(concat(block, "attention.attention.", name, ".bias"), {D}, 0, cuts.heads, H);
    }
    plan.add_split(block + "attention.output.dense.weight", {D, D}, 1, cuts.heads, H);
    plan.add_whole(block + "attention.output.dense.bias", {D});
    add_norm(block + "layernorm_after");
    plan.add_split(block + "intermediate.dense.weight", {F, D}, 0, cuts.ffn);
    plan.add_split(block + "intermediate.dense.bias", {F}, 0, cuts.ffn);
    plan.add_split(block + "output.dense.weight", {D, F}, 1, cuts.ffn);
    plan.add_whole(block + "output.dense.bias", {D});
  }
  add_norm("vit.layernorm");
  plan.add_whole("classifier.weight", {config.classes, D});
  plan.add_whole("classifier.bias", {config.classes});
  return plan;
}

Initialiser vit_initialiser(std::string_view name) {
  if (name.ends_with(".bias")) return {};
  if (name.find("layernorm") != name.npos) return {.value = 1};
  return {.std = 0.02};
}

}  // namespace trireme::model
