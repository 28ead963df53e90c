// Weights that are made up.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

namespace trireme::parallel {

inline at::Tensor made_weight(uint64_t seed, at::IntArrayRef shape,
                              at::ScalarType dtype = at::kFloat) {
  const at::Tensor index = at::arange(at::zeros(shape).numel(), at::kDouble).view(shape);
  return ((index * 1.7 + static_cast<double>(seed)).sin() * 0.08).to(dtype);
}

}  // namespace trireme::parallel
