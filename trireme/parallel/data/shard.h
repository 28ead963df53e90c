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
  // Over one axis, "shard": of the whole parameter, or inside the layout of the axes that split it
  // otherwise.
  mesh::Layout layout;
  int rank = 0;            // this one, in the layout
  bool is_trained = true;  // false: no gradient, no optimizer state

  // Index of the first element in the parameter, flattened: a part is one run of it, unless axes
  // besides "shard" split the parameter along its rows.
  int64_t first_element() const {
    const mesh::Box box = layout.whole_box(rank);
    int64_t index = 0;
    for (size_t d = 0; d < box.offset.size(); ++d) {
      index = index * layout.whole_shape()[d] + box.offset[d];
    }
    return index;
  }
  bool is_whole() const { return weights.sizes() == at::IntArrayRef(layout.whole_shape()); }
};

}  // namespace trireme::parallel
