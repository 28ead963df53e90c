// The rows of a branch that does more than multiply: its input whole on every rank of the tensor
// axis, and the sum of the ranks' parts of its output.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// All rows of x. Each rank computes a part of the branch's output from them, so their gradients are
// summed.
// Shapes:     x as the layers hold it, [..., D] or with axis.sequence [s, D] -> [S, D]
// Comm:       n = S*D*itemsize bytes. forward none, backward 2(p-1)/p * n; with axis.sequence
//             (p-1)/p * n each
// Collective: every rank of the axis
at::Tensor open_branch(const at::Tensor& x, int64_t num_rows, const TensorAxis& axis);

// The sum of the ranks' y, as the layers hold it.
// Shapes:     y_SD [S, D] -> `like` as the layers hold it
// Comm:       n = S*D*itemsize bytes. forward 2(p-1)/p * n, backward none; with axis.sequence
//             (p-1)/p * n each
// Collective: every rank of the axis
at::Tensor close_branch(const at::Tensor& y_SD, at::IntArrayRef like, const TensorAxis& axis);

}  // namespace trireme::parallel
