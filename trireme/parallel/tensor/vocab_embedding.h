// An embedding whose rows are split over the tensor axis.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// Looks up `tokens_BT`; each row comes from the rank that holds it.
// Shapes:     tokens_BT [B, T] int64; weight_vD [v, D]: rows first_row to first_row + v of [V, D]
//             -> [B, T, D], or with axis.sequence [s, D]
// Comm:       n = B*T*D*itemsize bytes. forward 2(p-1)/p * n, backward none; with axis.sequence
//             forward (p-1)/p * n, backward (p-1)/p * n
// Collective: every rank of the axis, with the same tokens
at::Tensor vocab_embedding(const at::Tensor& tokens_BT, const at::Tensor& weight_vD,
                           int64_t first_row, const TensorAxis& axis);

}  // namespace trireme::parallel
