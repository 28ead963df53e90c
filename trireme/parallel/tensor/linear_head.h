// The last linear layer of a language model, as the losses of its tokens see it: a few rows of
// logits at a time.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/base/machine/matrix_product.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// The last linear layer of a language model and its input. The width and the dtype may be any.
struct LinearHead {
  at::Tensor x;         // as the layers hold it, [..., D] or with axis.sequence [s, D]
  at::Tensor w_vD;      // [v, D], this rank's rows of the vocabulary
  at::Tensor bias_v{};  // [v]; undefined: none
  double softcap = 0;   // c: logits become c tanh(logit / c); 0: they stay
};

// The type in which a layer multiplies the rows of `x`.
at::ScalarType factors_of(const at::Tensor& x);

// Caps the logits in place. Returns the slope of each if it is wanted and there is a cap.
at::Tensor apply_cap(const at::Tensor& logits_Cv, double cap, bool wants_slope);

// The logits of a head that is not trained, a few rows at a time.
class FrozenLogits {
 public:
  // Comm:       with axis.sequence (p-1)/p of head.x; otherwise none
  // Collective: every rank of the axis
  FrozenLogits(const LinearHead& head, int64_t num_rows, int64_t chunk, const TensorAxis& axis);

  // Of `count` rows, at most `chunk`. [count, v] fp32 or fp64; the next call overwrites them.
  at::Tensor rows(int64_t start, int64_t count);

 private:
  at::Tensor bias_v_;
  double softcap_;
  at::Tensor x_SD_;
  ProductFactor w_Dv_;
  at::Tensor buffer_Cv_;
};

}  // namespace trireme::parallel
