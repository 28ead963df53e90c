// What a low-rank adapter adds to its layer's output.
// Source: Hu et al. 2021, arXiv:2106.09685, section 4.1
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::parallel {

enum class AdapterSum {
  kNew,      // in memory of its own
  kInPlace,  // in that of y, which must be an intermediate result that nobody else keeps
};

// y + scale * z b^T.
// Shapes: y [..., F], z [..., r] with as many rows: x A^T; b [F, r] -> as y
// Comm:   none; the caller sums b's gradient where ranks share b
at::Tensor add_adapter(const at::Tensor& y, const at::Tensor& z, const at::Tensor& b, double scale,
                       const TensorAxis& axis, AdapterSum sum);

}  // namespace trireme::parallel
