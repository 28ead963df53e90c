// Rows that are whole on every rank of the tensor axis: the input of a branch, and those that a
// head picks.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// The rows of a branch that does more than multiply: its input whole on every rank of the tensor
// axis, and the sum of the ranks' parts of its output.

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

// Some of the rows that a model has between its layers, whole on every rank of the tensor axis: the
// input of a head that reads only a few tokens.

// Picks rows of x. What follows must be computed alike on every rank: backward takes the gradient
// that a rank has to be the whole gradient.
// Shapes:     x as the layers hold it, [..., D] or with axis.sequence [s, D]; rows_n [n] int64 in
//             [0, S), all different, the same on every rank -> [n, D], the same on every rank
// Comm:       none; with axis.sequence forward 2(p-1)/p * n*D*itemsize bytes, backward none
// Collective: every rank of the axis
at::Tensor pick_rows(const at::Tensor& x, const at::Tensor& rows_n, int64_t num_rows,
                     const TensorAxis& axis);

}  // namespace trireme::parallel
