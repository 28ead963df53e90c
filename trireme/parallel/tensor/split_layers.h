// The layers whose weights are split over the tensor axis: linear ones by rows or columns, and the
// embedding.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/machine/weight_codes.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// A low-rank adapter of a linear layer: y gains scale * drop(x) A^T B^T.
// Source: Hu et al. 2021, arXiv:2106.09685, section 4.1
struct Adapter {
  at::Tensor a{};  // [r, in]; undefined: no adapter
  at::Tensor b{};  // [out, r]
  double scale = 1;
  std::function<at::Tensor(const at::Tensor& x)> drop{};  // empty: nothing is dropped
  // Weight decomposition: what the magnitude of each output exceeds the length of its row of W by.
  // y becomes m / |W + scale B A| * (the sum) + bias, with the length of each row held constant in
  // backward. Undefined: y is the sum.
  // Source: Liu et al. 2024, arXiv:2402.09353, section 4
  at::Tensor magnitude{};  // [out]
};

// A weight in the layout of torch and Hugging Face, with an optional bias and adapter.
struct LinearWeight {
  at::Tensor weight;    // [out, in]; undefined: it is frozen as `codes`
  at::Tensor bias{};    // [out]; undefined: no bias
  Adapter adapter{};    // cut as the weight is
  WeightCodes codes{};  // decoded to the input's dtype for each product, and again in backward

  int64_t rows() const { return weight.defined() ? weight.size(0) : codes.rows(); }
  int64_t columns() const { return weight.defined() ? weight.size(1) : codes.columns(); }
};

// Linear layers with the same input whose outputs are split over the tensor axis: each rank has
// some rows of every weight. One call does query, key and value, or gate and up.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3

// y_i = x W_i^T + b_i with this rank's rows of each W_i. x's gradient is summed over the layers
// inside the matrix products, and over the ranks while the weights' gradients are computed. An
// adapter has its whole A on every rank and this rank's rows of B.
// Shapes:     x as the layers hold it, [..., D] or with axis.sequence [s, D]; W_i [f_i, D] -> y_i
//             [lead..., f_i], the product of `lead` being S
// Comm:       n = S*D*itemsize bytes. forward none, backward 2(p-1)/p * n; with axis.sequence
//             forward (p-1)/p * n, backward 2(p-1)/p * n (x again, its gradient). An adapter adds
//             2(p-1)/p * r*D*4 bytes in backward; one that drops x, all of the above for itself;
//             magnitudes none
// Collective: every rank of the axis
std::vector<at::Tensor> column_linear(const at::Tensor& x, const std::vector<LinearWeight>& layers,
                                      at::IntArrayRef lead, const TensorAxis& axis);

// A linear layer whose input is split over the tensor axis: each rank has some columns of the
// weight, and the ranks' products are summed. It ends a branch that column_linear() began.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3

// The sum over ranks of x W^T, plus bias and residual, which are added once. Every rank holds the
// whole bias, and its gradient has the same bits on all ranks. An adapter has this rank's columns
// of A and its whole B on every rank.
// Shapes:     x_f [..., f], S rows; W [D, f]; residual as the layers hold it, [..., D] or with
//             axis.sequence [s, D]; undefined: none -> residual's shape; without residual x's with
//             D in place of f, or [s, D]
// Comm:       n = S*D*itemsize bytes. forward 2(p-1)/p * n, backward none; with axis.sequence
//             forward (p-1)/p * n, backward (p-1)/p * n. An adapter adds the same with r in place
//             of D; with axis.sequence also 2(p-1)/p * D*r*4 in backward. Magnitudes add
//             2(p-1)/p * 2*D*4 in forward, with axis.sequence also half of that in backward
// Collective: every rank of the axis
at::Tensor row_linear(const at::Tensor& x_f, const LinearWeight& layer, const at::Tensor& residual,
                      const TensorAxis& axis);

// x W^T + b by this rank's rows of the weight, of an x that every rank has: another layer has
// summed its gradient.
// Shapes:     x [..., in] -> [..., out]
// Comm:       forward none; backward 2(p-1)/p * r*in*4 bytes for an adapter
// Collective: with an adapter, every rank of the axis
at::Tensor own_linear(const at::Tensor& x, const LinearWeight& layer, const TensorAxis& axis);

// An embedding whose rows are split over the tensor axis.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3

// Looks up `tokens_BT`; each row comes from the rank that holds it.
// Shapes:     tokens_BT [B, T] int64; weight_vD [v, D]: rows first_row to first_row + v of [V, D]
//             -> [B, T, D], or with axis.sequence [s, D]
// Comm:       n = B*T*D*itemsize bytes. forward 2(p-1)/p * n, backward none; with axis.sequence
//             forward (p-1)/p * n, backward (p-1)/p * n
// Collective: every rank of the axis, with the same tokens
at::Tensor vocab_embedding(const at::Tensor& tokens_BT, const at::Tensor& weight_vD,
                           int64_t first_row, const TensorAxis& axis);

}  // namespace trireme::parallel
