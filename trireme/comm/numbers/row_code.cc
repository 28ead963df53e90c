#include "trireme/comm/numbers/row_code.h"

#include <ATen/ATen.h>

namespace trireme::comm {

at::Tensor scales_of_largest(const at::Tensor& rows, int most) {
  return rows.abs().amax(1, /*keepdim=*/true).div_(most);
}

at::Tensor nearest_whole(const at::Tensor& rows, const at::Tensor& scales, int most) {
  // A row of zeros gives 0 / 0 = NaN.
  return at::div(rows, scales).round_().clamp_(-most, most).nan_to_num_(0, 0, 0);
}

at::Tensor scales_of_norm(const at::Tensor& rows, const at::Tensor& counts) {
  return rows.to(at::kDouble).square().sum(1, /*keepdim=*/true).div_(counts.clamp_min(1)).sqrt_();
}

}  // namespace trireme::comm
