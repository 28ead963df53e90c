// Linear layers with the same input whose outputs are split over the tensor axis: each rank has
// some rows of every weight. One call does query, key and value, or gate and up.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// A weight in the layout of torch and Hugging Face, with an optional bias.
struct LinearWeight {
  at::Tensor weight;  // [out, in]
  at::Tensor bias{};  // [out]; undefined: no bias
};

// y_i = x W_i^T + b_i with this rank's rows of each W_i. x's gradient is summed over the layers
// inside the matrix products, and over the ranks while the weights' gradients are computed.
// Shapes:     x as the layers hold it, [..., D] or with axis.sequence [s, D]; W_i [f_i, D] -> y_i
//             [lead..., f_i], the product of `lead` being S
// Comm:       n = S*D*itemsize bytes. forward none, backward 2(p-1)/p * n; with axis.sequence
//             forward (p-1)/p * n, backward 2(p-1)/p * n (x again, its gradient)
// Collective: every rank of the axis
std::vector<at::Tensor> column_linear(const at::Tensor& x, const std::vector<LinearWeight>& layers,
                                      at::IntArrayRef lead, const TensorAxis& axis);

}  // namespace trireme::parallel
