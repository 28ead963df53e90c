// A linear layer whose input is split over the tensor axis: each rank has some columns of the
// weight, and the ranks' products are summed. It ends a branch that column_linear began.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/column_linear.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// The sum over ranks of x W^T, plus bias and residual, which are added once. Every rank holds the
// whole bias, and its gradient has the same bits on all ranks.
// Shapes:     x_f [..., f], S rows; W [D, f]; residual as the layers hold it, [..., D] or with
//             axis.sequence [s, D]; undefined: none -> residual's shape; without residual x's with
//             D in place of f, or [s, D]
// Comm:       n = S*D*itemsize bytes. forward 2(p-1)/p * n, backward none; with axis.sequence
//             forward (p-1)/p * n, backward (p-1)/p * n
// Collective: every rank of the axis
at::Tensor row_linear(const at::Tensor& x_f, const LinearWeight& layer, const at::Tensor& residual,
                      const TensorAxis& axis);

}  // namespace trireme::parallel
