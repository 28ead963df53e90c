#include "trireme/model/dit/dit_plan.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/model/dit/dit.h"
#include "trireme/model/family/branch_plan.h"

namespace trireme::model {
namespace {

// The numbers of a config, for products that may exceed 64 bits.
struct Sizes {
  explicit Sizes(const DitConfig& config)
      : L(static_cast<double>(config.layers)),
        D(static_cast<double>(config.width)),
        F(static_cast<double>(config.ffn_width())),
        T(static_cast<double>(config.num_tokens())),
        K(static_cast<double>(config.patch_elements())),
        W(static_cast<double>(kTimestepWaves)),
        classes(static_cast<double>(config.classes)) {}
  double L, D, F, T, K, W, classes;
};

double total(const DitConfig& config, const DitCosts& costs) {
  return costs.embeddings + static_cast<double>(config.layers) * costs.block + costs.head;
}

}  // namespace

ModelPlan make_dit_plan(const DitConfig& config, int tensor_ranks) {
  TRIREME_CHECK(config.classes > 0, "model.classes = ", config.classes,
                "; expected at least 1: set it, or take it from the data before building");
  ModelPlan plan(config.block_config(), {.tensor = tensor_ranks});
  const TensorCuts& cuts = plan.cuts();
  const int64_t D = config.width, F = config.ffn_width(), H = D / config.heads;
  const int64_t C = config.channels, P = config.patch_size;
  const auto add_linear = [&](const std::string& name, int64_t out, int64_t in) {
    plan.add_whole(name + ".weight", {out, in});
    plan.add_whole(name + ".bias", {out});
  };
  plan.add_whole("pos_embed.proj.weight", {D, C, P, P});
  plan.add_whole("pos_embed.proj.bias", {D});
  add_linear("emb.timestep_embedder.linear_1", D, kTimestepWaves);
  add_linear("emb.timestep_embedder.linear_2", D, D);
  plan.add_whole("emb.class_embedder.embedding_table.weight", {config.classes + 1, D});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = concat("transformer_blocks.", layer, ".");
    add_linear(block + "norm1.linear", 6 * D, D);
    for (const char* name : {"attn1.to_q", "attn1.to_k", "attn1.to_v"})
      add_columns(plan, block + name, {D, D}, cuts.heads, H);
    add_rows(plan, block + "attn1.to_out.0", {D, D}, cuts.heads, H);
    add_columns(plan, block + "ff.net.0.proj", {F, D}, cuts.ffn);
    add_rows(plan, block + "ff.net.2", {D, F}, cuts.ffn);
  }
  add_linear("proj_out_1", 2 * D, D);
  add_linear("proj_out_2", config.patch_elements(), D);
  return plan;
}

Initialiser dit_initialiser(std::string_view name) {
  const bool modulates = name.find(".norm1.linear.") != name.npos || name.starts_with("proj_out_");
  if (modulates || name.ends_with(".bias")) return {};
  return {.std = 0.02};
}

DitCosts dit_parameters(const DitConfig& config) {
  const auto [L, D, F, T, K, W, classes] = Sizes(config);
  return {.embeddings = K * D + D + (W * D + D) + (D * D + D) + (classes + 1) * D,
          .block = 6 * (D * D + D) + 4 * (D * D + D) + (D * F + F) + (F * D + D),
          .head = 2 * (D * D + D) + K * D + K};
}

int64_t num_parameters(const DitConfig& config) {
  return static_cast<int64_t>(total(config, dit_parameters(config)));
}

double split_parameters(const DitConfig& config) {
  const auto [L, D, F, T, K, W, classes] = Sizes(config);
  return 4 * D * D + 2 * D * F;
}

// A weight takes 2 operations per row in the forward pass and 4 in the backward pass: 2 for its
// gradient and 2 for that of its input. The scores and their product with v take 2 * 2 * T * D for
// each token in forward and twice that in backward. An image has one row of conditioning.
DitCosts dit_flops(const DitConfig& config) {
  const auto [L, D, F, T, K, W, classes] = Sizes(config);
  return {.embeddings = 4 * T * K * D + 4 * W * D + 6 * D * D,
          .block = 6 * T * (4 * D * D + 2 * D * F) + 12 * T * T * D + 6 * 6 * D * D,
          .head = 6 * T * K * D + 6 * 2 * D * D};
}

double flops_per_image(const DitConfig& config) { return total(config, dit_flops(config)); }

DitCosts dit_kept_bytes(const DitConfig& config, const DitForward& forward) {
  const auto [L, D, F, T, K, W, classes] = Sizes(config);
  const auto item = static_cast<double>(c10::elementSize(forward.dtype));
  const auto tensor = static_cast<double>(forward.tensor);
  const double images = static_cast<double>(forward.num_images);
  const double tokens = images * T / static_cast<double>(forward.context);
  // Between the layers each tensor rank has all rows, or only its own. Modulations have one row per
  // image, or under sequence parallelism one per token.
  const double rows = forward.sequence ? tokens / tensor : tokens;
  const double modulated = forward.sequence ? rows : images;
  // Pixels, waves, and what is before and after the function between the timestep's products. A
  // norm's input, its output and the modulated rows; silu's input and output.
  DitCosts kept{.embeddings = item * (K * rows + (W + 2 * D) * images),
                .block = item * D * (rows + images),
                .head = item * D * (3 * rows + 2 * images + 2 * modulated)};
  const RecomputePlan& again = forward.recompute;
  if (again.block) return kept;
  const double attention = again.attention ? 0 : 4 * D;        // q, k, v and the core's output
  const double feed_forward = again.feed_forward ? 0 : 2 * F;  // before and after GELU
  // Of two norms the same, and the output of each branch, which its gate multiplies.
  kept.block = item * (8 * D * rows + (attention + feed_forward) * tokens / tensor +
                       D * (2 * images + 6 * modulated));
  return kept;
}

}  // namespace trireme::model
