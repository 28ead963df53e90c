// Error feedback: what a learner's messages have lost is added to its next difference.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/learner/wire_form.h"

namespace trireme::parallel {

// Encodes difference + residual, and leaves in the residual what that loses. If it throws, the
// residual stays.
// Shapes: difference, residual [n] fp32 on one device -> [encoded_bytes(form, n)] uint8 on the CPU
// Throws: as parallel::encode(); the sum may be infinite where the difference is not
at::Tensor encode_with_residual(const WireForm& form, const at::Tensor& difference,
                                const at::Tensor& residual, RandomKey key = {});

// One per learner and tensor. Part of a run's state.
// Let c = difference + residual, rounded to fp32, be what is encoded, s = decode() of it, and r =
// c - s the next residual. Then
//   s + r = c exactly, element by element (a zero may change its sign), for kFloat32 and for
//         nearest rounding, with all elements or the largest: an element that is sent as other
//         than 0 is at least half and at most twice s, so fp32 holds c - s
//   |s + r - c| <= 2^-24 |c - s| for the other codes, whose s may exceed c by more
// Source: Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019,
//         arXiv:1901.09847
class Residual {
 public:
  explicit Residual(int64_t num_elements, at::TensorOptions device = {});

  // encode_with_residual() with this one.
  at::Tensor encode(const WireForm& form, const at::Tensor& difference, RandomKey key = {});

  // [n] fp32, in place for loading. 0 at first.
  const at::Tensor& value() const { return value_; }

 private:
  at::Tensor value_;
};

}  // namespace trireme::parallel
