#include "trireme/parallel/learner/residual.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

at::Tensor encode_with_residual(const WireForm& form, const at::Tensor& difference,
                                const at::Tensor& residual, RandomKey key) {
  const at::Tensor corrected = difference + residual;
  const at::Tensor bytes = parallel::encode(form, corrected.cpu(), key);
  // Of what the peers decode, and not of a value before it was packed.
  residual.copy_(corrected - decode(form, bytes, residual.numel()).to(corrected.device()));
  return bytes;
}

Residual::Residual(int64_t num_elements, at::TensorOptions device)
    : value_(at::zeros({num_elements}, device.dtype(at::kFloat))) {}

at::Tensor Residual::encode(const WireForm& form, const at::Tensor& difference, RandomKey key) {
  TRIREME_ASSERT(difference.sizes() == value_.sizes(), "a difference of ", difference.numel(),
                 " elements for a residual of ", value_.numel());
  return encode_with_residual(form, difference, value_, key);
}

}  // namespace trireme::parallel
