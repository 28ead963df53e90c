#include "trireme/parallel/tensor/linear_head.h"

#include <ATen/ATen.h>

#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel {

at::ScalarType factors_of(const at::Tensor& x) {
  const bool widens = x.is_cpu() && !multiplies_narrow(x);
  return widens ? at::promote_types(x.scalar_type(), at::kFloat) : x.scalar_type();
}

at::Tensor apply_cap(const at::Tensor& logits_Cv, double cap, bool wants_slope) {
  at::Tensor slope_Cv;
  if (cap <= 0) return slope_Cv;
  logits_Cv.div_(cap).tanh_();
  if (wants_slope) slope_Cv = logits_Cv.square().neg_().add_(1);
  logits_Cv.mul_(cap);
  return slope_Cv;
}

FrozenLogits::FrozenLogits(const LinearHead& head, int64_t num_rows, int64_t chunk,
                           const TensorAxis& axis)
    : bias_v_(head.bias_v.defined() ? head.bias_v.detach() : at::Tensor()),
      softcap_(head.softcap),
      x_SD_(gather_rows(view_rows(head.x.detach()).contiguous(), num_rows, axis)
                .wait()
                .to(factors_of(head.x))),
      w_Dv_(ProductFactor(head.w_vD.detach().to(x_SD_.scalar_type())).t()),
      buffer_Cv_(at::empty({chunk, head.w_vD.size(0)}, x_SD_.options().dtype(at::promote_types(
                                                           x_SD_.scalar_type(), at::kFloat)))) {}

at::Tensor FrozenLogits::rows(int64_t start, int64_t count) {
  const at::Tensor logits_Cv = buffer_Cv_.narrow(0, 0, count);
  multiply_on_device(logits_Cv, x_SD_.narrow(0, start, count), w_Dv_);
  if (bias_v_.defined()) logits_Cv.add_(bias_v_);
  apply_cap(logits_Cv, softcap_, /*wants_slope=*/false);
  return logits_Cv;
}

}  // namespace trireme::parallel
