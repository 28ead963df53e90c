// A parameter that every rank of the tensor axis holds whole but uses on its own part of the work:
// a norm on its tokens under sequence parallelism, key and value projections that more ranks share
// than there are heads. The gradient is summed, so that the copies stay the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// The weight itself; backward sums its gradient over the axis.
// Comm:       forward none; backward 2(p-1)/p * weight.numel() * 4 bytes, fp64 8
// Collective: every rank of the axis, backward too: its gradient must reach it on each
at::Tensor replicated_weight(const at::Tensor& weight, const TensorAxis& axis);

// The weight of a layer that works on the rows which a rank holds between layers: under sequence
// parallelism those are its own, otherwise all of them and every rank has the whole gradient.
at::Tensor weight_of_rows(const at::Tensor& weight, const TensorAxis& axis);

}  // namespace trireme::parallel
