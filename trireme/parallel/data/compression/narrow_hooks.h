// Gradient hooks that send every element in fewer bits.
#pragma once

#include <c10/core/ScalarType.h>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

// Sends gradients as bf16 or fp16, which is half the bytes of fp32.
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

inline constexpr int64_t kInt8Block = 256;

// Sends gradients as int8, with one fp32 scale per block of 256.
// A block's scale is its largest magnitude / 127. An element is round(x / scale), half to even. The
// ranks' blocks are decoded and summed in fp32 in rank order, and the sum is coded again. Each
// parameter begins a block, and its last block is padded with zeros, which are sent too. The error
// of an element is at most half the scale of each rank's block plus half that of the sum's. A block
// with a NaN or an infinity becomes NaN.
// State:  none; rounding errors are lost.
// Source: Dettmers 2015, arXiv:1511.04561; blocks and hops as in ZeRO++, Wang et al. 2023,
//         arXiv:2306.10209
class Int8Hook : public GradientHook {
 public:
  // Comm: 2(p-1)/p * 260 bytes per block: 1.016 bytes per element each way
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
};

}  // namespace trireme::parallel
