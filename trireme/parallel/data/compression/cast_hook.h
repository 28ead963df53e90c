// Sends gradients as bf16 or fp16, which is half the bytes of fp32.
#pragma once

#include <c10/core/ScalarType.h>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

// Each rank's gradient is rounded to the wire's dtype. The rounded values are summed in fp32 in
// rank order, and the sum is rounded again. This rounds twice whatever the number of ranks, while
// an all-reduce in bf16 would round at every addition. bf16 keeps fp32's range with 8 bits of
// precision. fp16 has 11 bits from 6e-5 to 65504; a larger gradient becomes infinite and the step
// is refused.
// State: none.
class CastHook : public GradientHook {
 public:
  // Throws: ConfigError when `wire` is neither bf16 nor fp16
  explicit CastHook(at::ScalarType wire);

  // Comm: 2(p-1)/p * n elements of 2 bytes, including the bucket's padding
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;

 private:
  at::ScalarType wire_;
};

}  // namespace trireme::parallel
