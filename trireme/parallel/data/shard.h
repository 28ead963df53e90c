// This rank's part of one parameter: what optimizer, gradient norm, clipping and checkpoint work
// on, whatever the ZeRO stage. Without sharding it is the whole parameter.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"

namespace trireme::parallel {

struct Shard {
  std::string name;
  // This rank's box of the parameter, maybe empty. A scalar parameter has shape [1].
  at::Tensor weights;
  // Same shape; undefined before the first backward.
  at::Tensor gradient{};
  // Of the whole parameter over one axis, "shard".
  mesh::Layout layout;

  bool is_whole() const { return weights.sizes() == at::IntArrayRef(layout.shape()); }
};

}  // namespace trireme::parallel
