#include "trireme/parallel/learner/residual.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

Residual::Residual(int64_t num_elements, at::TensorOptions device)
    : value_(at::zeros({num_elements}, device.dtype(at::kFloat))) {}

at::Tensor Residual::encode(const WireForm& form, const at::Tensor& difference, RandomKey key) {
  TRIREME_ASSERT(difference.sizes() == value_.sizes(), "a difference of ", difference.numel(),
                 " elements for a residual of ", value_.numel());
  const at::Tensor corrected = difference + value_;
  const at::Tensor bytes = parallel::encode(form, corrected, key);
  // Of what the peers decode, and not of a value before it was packed.
  value_.copy_(corrected - decode(form, bytes, value_.numel()));
  return bytes;
}

}  // namespace trireme::parallel
