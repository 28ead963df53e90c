// Some of the rows that a model has between its layers, whole on every rank of the tensor axis: the
// input of a head that reads only a few tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// Picks rows of x. What follows must be computed alike on every rank: backward takes the gradient
// that a rank has to be the whole gradient.
// Shapes:     x as the layers hold it, [..., D] or with axis.sequence [s, D]; rows_n [n] int64 in
//             [0, S), all different, the same on every rank -> [n, D], the same on every rank
// Comm:       none; with axis.sequence forward 2(p-1)/p * n*D*itemsize bytes, backward none
// Collective: every rank of the axis
at::Tensor pick_rows(const at::Tensor& x, const at::Tensor& rows_n, int64_t num_rows,
                     const TensorAxis& axis);

}  // namespace trireme::parallel
