// This rank's part of one parameter, at every ZeRO stage. Optimizer, gradient norm, clipping and
// checkpoint work on it. Without sharding it is the whole parameter.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/part_memory.h"

namespace trireme::parallel {

struct Shard {
  std::string name;
  // This rank's box of the parameter, possibly empty. A scalar parameter has shape [1].
  at::Tensor weights;
  // Same shape; undefined before the first backward.
  at::Tensor gradient{};
  // Over one axis, "shard". Describes the whole parameter, or lies inside the layout of other axes
  // that split it.
  mesh::Layout layout;
  int rank = 0;            // this rank's index in the layout
  bool is_trained = true;  // false: no gradient, no optimizer state
  // Where the tensors are kept; null: with the parameters. As long as the owner of the shards.
  PartMemory* weights_home = nullptr;
  PartMemory* gradient_home = nullptr;

  // A hint, see PartMemory. Does nothing for tensors that are kept with the parameters.
  void let_go() const {
    if (weights_home != nullptr) weights_home->let_go(weights);
    if (gradient_home != nullptr) gradient_home->let_go(gradient);
  }

  bool is_whole() const { return weights.sizes() == at::IntArrayRef(layout.whole_shape()); }
};

}  // namespace trireme::parallel
