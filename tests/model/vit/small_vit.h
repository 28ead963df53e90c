// Vision Transformers small enough to compute in every way there is, and images for them.
#pragma once

#include <ATen/ATen.h>

#include "trireme/model/vit/vit_config.h"

namespace trireme::model {

// Nothing divides: 4 heads, 25 feed-forward rows, 10 tokens.
inline VitConfig small_vit() {
  return {.image_size = 6,
          .channels = 3,
          .patch_size = 2,
          .layers = 2,
          .width = 24,
          .heads = 4,
          .ffn_width = 25,
          .classes = 5};
}

// Images without a pattern.
inline at::Tensor some_images(const VitConfig& config, int64_t num_images,
                              at::ScalarType dtype = at::kDouble) {
  const std::vector<int64_t> shape = {num_images, config.channels, config.image_size,
                                      config.image_size};
  const int64_t size = num_images * config.channels * config.image_size * config.image_size;
  return at::arange(size, at::kDouble).mul(0.73).add(0.2).sin().view(shape).to(dtype);
}

inline at::Tensor some_labels(const VitConfig& config, int64_t num_images) {
  return at::arange(num_images, at::kLong).mul(7).add(3).remainder(config.classes);
}

}  // namespace trireme::model
