#include "trireme/model/vit/vit_plan.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

// The numbers of a config, for products that may exceed 64 bits.
struct Sizes {
  explicit Sizes(const VitConfig& config)
      : L(static_cast<double>(config.layers)),
        D(static_cast<double>(config.width)),
        F(static_cast<double>(config.ffn_width)),
        T(static_cast<double>(config.num_tokens())),
        patches(static_cast<double>(config.num_patches())),
        patch_elements(static_cast<double>(config.patch_elements())),
        classes(static_cast<double>(config.classes)) {}
  double L, D, F, T, patches, patch_elements, classes;
};

double total(const VitConfig& config, const VitCosts& costs) {
  return costs.embeddings + static_cast<double>(config.layers) * costs.block + costs.head;
}

void add_norm(ModelPlan& plan, const std::string& name, int64_t D) {
  plan.add_whole(name + ".weight", {D});
  plan.add_whole(name + ".bias", {D});
}

}  // namespace

void add_image_block(ModelPlan& plan, const std::string& block, const VitConfig& config,
                     const TensorCuts& cuts, const VitBlockNames& names) {
  const int64_t D = config.width, F = config.ffn_width, H = D / config.heads;
  const std::string attention = concat(block, names.attention, ".");
  const std::string feed_forward =
      *names.feed_forward == 0 ? block : concat(block, names.feed_forward, ".");
  add_norm(plan, block + names.first_norm, D);
  for (const char* const name : {names.query, names.key, names.value}) {
    plan.add_split(concat(attention, name, ".weight"), {D, D}, 0, cuts.heads, H);
    plan.add_split(concat(attention, name, ".bias"), {D}, 0, cuts.heads, H);
  }
  plan.add_split(concat(attention, names.output, ".weight"), {D, D}, 1, cuts.heads, H);
  plan.add_whole(concat(attention, names.output, ".bias"), {D});
  add_norm(plan, block + names.second_norm, D);
  plan.add_split(concat(feed_forward, names.up, ".weight"), {F, D}, 0, cuts.ffn);
  plan.add_split(concat(feed_forward, names.up, ".bias"), {F}, 0, cuts.ffn);
  plan.add_split(concat(feed_forward, names.down, ".weight"), {D, F}, 1, cuts.ffn);
  plan.add_whole(concat(feed_forward, names.down, ".bias"), {D});
}

ModelPlan make_vit_plan(const VitConfig& config, int tensor_ranks) {
  TRIREME_CHECK(config.classes > 0, "model.classes = ", config.classes,
                "; expected at least 1: set it, or take it from the data before building");
  ModelPlan plan(config.block_config(), {.tensor = tensor_ranks});
  const TensorCuts& cuts = plan.cuts();
  const int64_t D = config.width, C = config.channels, P = config.patch_size;
  plan.add_whole("vit.embeddings.cls_token", {1, 1, D});
  plan.add_whole("vit.embeddings.position_embeddings", {1, config.num_tokens(), D});
  plan.add_whole("vit.embeddings.patch_embeddings.projection.weight", {D, C, P, P});
  plan.add_whole("vit.embeddings.patch_embeddings.projection.bias", {D});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = concat("vit.encoder.layer.", layer, ".");
    add_image_block(plan, block, config, cuts, {});
  }
  add_norm(plan, "vit.layernorm", D);
  plan.add_whole("classifier.weight", {config.classes, D});
  plan.add_whole("classifier.bias", {config.classes});
  return plan;
}

Initialiser vit_initialiser(std::string_view name) {
  if (name.ends_with(".bias")) return {};
  if (name.find("layernorm") != name.npos) return {.value = 1};
  return {.std = 0.02};
}

VitCosts vit_parameters(const VitConfig& config) {
  const auto [L, D, F, T, patches, patch_elements, classes] = Sizes(config);
  return {.embeddings = D + T * D + patch_elements * D + D,
          .block = 2 * 2 * D + 4 * (D * D + D) + (D * F + F) + (F * D + D),
          .head = 2 * D + classes * D + classes};
}

int64_t num_parameters(const VitConfig& config) {
  return static_cast<int64_t>(total(config, vit_parameters(config)));
}

// A weight takes 2 operations per row in the forward pass and 4 in the backward pass: 2 for its
// gradient and 2 for that of its input. The scores and their product with v take 2 * 2 * T * D for
// each token in forward and twice that in backward.
VitCosts vit_flops(const VitConfig& config) {
  const auto [L, D, F, T, patches, patch_elements, classes] = Sizes(config);
  return {.embeddings = 4 * patches * patch_elements * D,
          .block = 6 * T * (4 * D * D + 2 * D * F) + 12 * T * T * D,
          .head = 6 * D * classes};
}

double flops_per_image(const VitConfig& config) { return total(config, vit_flops(config)); }

VitCosts vit_kept_bytes(const VitConfig& config, const VitForward& forward) {
  const auto [L, D, F, T, patches, patch_elements, classes] = Sizes(config);
  const auto item = static_cast<double>(c10::elementSize(forward.dtype));
  const auto tensor = static_cast<double>(forward.tensor);
  const double images = static_cast<double>(forward.num_images);
  const double tokens = images * T / static_cast<double>(forward.context);
  // Between the layers each tensor rank has all rows, or only its own.
  const double rows = forward.sequence ? tokens / tensor : tokens;
  VitCosts kept{.embeddings = item * patch_elements * rows,
                .block = item * D * rows,
                .head = item * D * (rows + images)};  // the norm's input, the class tokens
  const RecomputePlan& again = forward.recompute;
  if (again.block) return kept;
  const double attention = again.attention ? 0 : 4 * D;        // q, k, v and the core's output
  const double feed_forward = again.feed_forward ? 0 : 2 * F;  // before and after GELU
  // Input and output of two norms.
  kept.block = item * (4 * D * rows + (attention + feed_forward) * tokens / tensor);
  return kept;
}

}  // namespace trireme::model
