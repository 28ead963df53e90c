// Norms of whole tensors, and ratios of norms. The results are tensors, so nothing waits for a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::train::inline internal {

// The Euclidean norm, []. On a CPU it is summed in double in a fixed order (grain_squares).
at::Tensor l2_norm(const at::Tensor& tensor);

// The root of the mean square, []. The tensor must not be empty.
at::Tensor root_mean_square(const at::Tensor& tensor);

// numerator / denominator if both are above 0, else 1. [], [] -> []
at::Tensor trust_ratio(const at::Tensor& numerator, const at::Tensor& denominator);

}  // namespace trireme::train::inline internal
