// Gradients as bf16 or fp16 on the wire, half the bytes of fp32.
#pragma once

#include <c10/core/ScalarType.h>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

// Each rank's gradient is rounded to the wire's dtype, the rounded ones are summed in fp32 in rank
// order, and the sum is rounded again: two roundings on the way whatever the number of ranks, where
// an all-reduce in bf16 would round at every addition. bf16 keeps fp32's range and 8 bits; fp16 has
// 11 bits from 6e-5 to 65504, beyond which a gradient becomes infinite and the step is refused.
// State: none.
class CastHook : public GradientHook {
 public:
  // Throws: ConfigError when `wire` is neither bf16 nor fp16
  explicit CastHook(at::ScalarType wire);

  // Comm: 2(p-1)/p * n elements of 2 bytes, padding of the bucket included
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;

 private:
  at::ScalarType wire_;
};

}  // namespace trireme::parallel
