// A parameter that every rank of the tensor axis holds whole but uses for its own part of the work:
// a norm on the rank's tokens under sequence parallelism, or key and value projections when there
// are more ranks than kv heads. The gradient is summed, so the copies keep the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// Returns the weight. Backward sums its gradient over the axis.
// Comm:       forward none; backward 2(p-1)/p * weight.numel() * 4 bytes (fp64: 8)
// Collective: every rank of the axis, in backward too: the gradient must reach it on every rank
at::Tensor replicated_weight(const at::Tensor& weight, const TensorAxis& axis);

// The weight of a layer that works on the rows a rank holds between layers. Under sequence
// parallelism these are the rank's own rows. Otherwise they are all rows, and every rank already
// has the whole gradient.
at::Tensor weight_of_rows(const at::Tensor& weight, const TensorAxis& axis);

}  // namespace trireme::parallel
