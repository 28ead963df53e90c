// Diffusion transformers small enough to compute in every way there is, and what they read.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "trireme/model/dit/diffusion_transformer.h"
#include "trireme/model/dit/dit_config.h"

namespace trireme::model {

// 9 tokens, which 2 and 4 ranks do not divide.
inline DitConfig small_dit() {
  return {.image_size = 6,
          .channels = 3,
          .patch_size = 2,
          .layers = 2,
          .width = 24,
          .heads = 4,
          .classes = 5};
}

struct NoisyImages {
  at::Tensor images;
  at::Tensor timesteps;
  at::Tensor classes;
};

// Without a pattern. The last image has no class.
inline NoisyImages noisy_images(const DitConfig& config, int64_t num_images,
                                at::ScalarType dtype = at::kDouble) {
  const int64_t size = num_images * config.channels * config.image_size * config.image_size;
  const at::Tensor numbers = at::arange(num_images, at::kLong);
  at::Tensor classes = numbers.mul(7).add(3).remainder(config.classes);
  if (num_images > 0) classes[num_images - 1] = config.null_class();
  return {at::arange(size, at::kDouble)
              .mul(0.73)
              .add(0.2)
              .sin()
              .view({num_images, config.channels, config.image_size, config.image_size})
              .to(dtype),
          numbers.mul(331).add(17).remainder(1000), classes};
}

// Away from the initial values: without gates nothing but the last bias would learn.
inline void move_from_start(torch::nn::Module& module, double distance = 0.1) {
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor index = at::arange(item.value().numel(), at::kDouble);
    item.value().add_(index.mul(0.7).sin().mul(distance).view(item.value().sizes()));
  }
}

}  // namespace trireme::model
