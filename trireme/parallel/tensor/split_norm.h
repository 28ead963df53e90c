// The root-mean-square norm of a dimension that the tensor axis splits, such as all heads' queries.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// This rank's part of what is normed, and of the norm's weight.
struct SplitNorm {
  at::Tensor x;       // [..., f]
  at::Tensor weight;  // [f]
  int64_t width = 0;  // F, of all ranks together
};

// y_i = x_i / sqrt(m_i + epsilon) * (offset + weight_i), where m_i is the mean of x_i^2 over the
// columns of all ranks. Computes in at least fp32.
// Shapes:     x_i [..., f_i], all with S rows -> the same
// Comm:       forward and backward 2(p-1)/p * n*S*4 bytes each (fp64: 8), of n norms together
// Collective: every rank of the axis
// Source:     Zhang & Sennrich 2019, arXiv:1910.07467, section 3
std::vector<at::Tensor> split_rms_norm(const std::vector<SplitNorm>& norms, double epsilon,
                                       double offset, const TensorAxis& axis);

}  // namespace trireme::parallel
