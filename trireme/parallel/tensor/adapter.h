// What a low-rank adapter adds to its layer's output, and the scale of what has magnitudes.
// Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; Liu et al. 2024, arXiv:2402.09353
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

// What a rank has of the rows of a layer's weight.
enum class AdapterRows { kWhole, kCut };

// By what a layer with magnitudes multiplies each output, before its bias: its magnitude over the
// length of its row of W + scale B A.
// Shapes:     [out], in the dtype of the magnitudes
// Comm:       kWhole: none; kCut: 2(p-1)/p * 2*out*4 bytes (fp64: 8) in forward, none in backward
// Collective: kCut: every rank of the axis
at::Tensor magnitude_gain(const LinearWeight& layer, AdapterRows rows, const TensorAxis& axis);

}  // namespace trireme::parallel
