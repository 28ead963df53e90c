#include "trireme/train/numerics/tensor_norm.h"

#include <cmath>

#include <ATen/ATen.h>

#include "trireme/train/numerics/gradient_norm.h"

namespace trireme::train::inline internal {

at::Tensor l2_norm(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return at::linalg_vector_norm(tensor);
  return at::scalar_tensor(gradient_norm(grain_squares(tensor, {tensor.sizes().vec(), {}})),
                           at::kDouble);
}

at::Tensor root_mean_square(const at::Tensor& tensor) {
  return l2_norm(tensor).div_(std::sqrt(static_cast<double>(tensor.numel())));
}

at::Tensor trust_ratio(const at::Tensor& numerator, const at::Tensor& denominator) {
  return at::where(numerator.gt(0).logical_and_(denominator.gt(0)), at::div(numerator, denominator),
                   1.0);
}

}  // namespace trireme::train::inline internal
