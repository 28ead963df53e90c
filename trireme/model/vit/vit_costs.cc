#include "trireme/model/vit/vit_costs.h"

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

}  // namespace

VitCosts vit_parameters(const VitConfig& config) {
  const auto [L, D, F, T, patches, patch_elements, classes] = Sizes(config);
  return {.embeddings = D + T * D + patch_elements * D + D,
          .block = 2 * 2 * D + 4 * (D * D + D) + (D * F + F) + (F * D + D),
          .head = 2 * D + classes * D + classes};
}

int64_t num_parameters(const VitConfig& config) {
  return static_cast<int64_t>(total(config, vit_parameters(config)));
}

// A weight takes 2 operations for each row in forward and 4 in backward, of which 2 are for the
// gradient of its input. The scores and their product with v take 2 * 2 * T * D for each token in
// forward and twice that in backward.
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
