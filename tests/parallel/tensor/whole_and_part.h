// One rank's part of whole tensors, for comparing a layer split over ranks with the layer on one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/harness/gradients.h"
#include "tests/harness/ranks.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

inline at::Tensor part_of(const at::Tensor& whole, int64_t dim, const TensorAxis& axis) {
  const mesh::Range range = mesh::split_range(whole.size(dim), axis.size(), axis.rank());
  return whole.narrow(dim, range.offset, range.size).contiguous();
}

// What the layers hold of x between them.
inline at::Tensor held_rows(const at::Tensor& x, const TensorAxis& axis) {
  if (!axis.sequence) return x.clone();
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const mesh::Range own = axis.own_rows(rows.size(0));
  return rows.narrow(0, own.offset, own.size).contiguous();
}

// Every combination of ranks and ways to hold rows; `function` runs on each rank.
inline void for_each_axis(const std::vector<int>& worlds,
                          const std::function<void(const TensorAxis&)>& function) {
  for (const int world : worlds) {
    for (const bool sequence : {false, true}) {
      for (const bool overlap : {false, true}) {
        SCOPED_TRACE(std::to_string(world) + " ranks, sequence " + std::to_string(sequence) +
                     ", overlap " + std::to_string(overlap));
        harness::run_ranks(world, [&](comm::Communicator& group) {
          function({.group = &group,
                    .sequence = sequence,
                    .overlap = std::make_shared<const bool>(overlap)});
        });
      }
    }
  }
}

}  // namespace trireme::parallel
