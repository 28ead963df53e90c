// Norms and ratios of norms of whole tensors, as tensors: nothing waits for a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::train {

// Euclidean norm, []. On a CPU summed in double and in a fixed order (grain_squares).
at::Tensor l2_norm(const at::Tensor& tensor);

// Root of the mean square of a tensor with an element, [].
at::Tensor root_mean_square(const at::Tensor& tensor);

// numerator / denominator where both are above 0, else 1. [], [] -> []
at::Tensor trust_ratio(const at::Tensor& numerator, const at::Tensor& denominator);

}  // namespace trireme::train
