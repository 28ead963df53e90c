// This rank's part of one parameter: what optimizer, gradient norm, clipping and checkpoint work
// on, whatever the ZeRO stage. Without sharding it is the whole parameter.
#pragma once

#include <cstdint>
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
  // Where `weights` lies in the parameter; without offsets: all of it.
  mesh::Box box{};
  bool is_trained = true;  // false: no gradient, no optimizer state

  // Index of the first element in the parameter, flattened: a part is one run of it.
  int64_t first_element() const {
    int64_t index = 0;
    for (size_t d = 0; d < box.offset.size(); ++d) {
      index = index * layout.shape()[d] + box.offset[d];
    }
    return index;
  }
  bool is_whole() const { return weights.sizes() == at::IntArrayRef(layout.shape()); }
};

}  // namespace trireme::parallel
