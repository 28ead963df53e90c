// Gradients as int8 on the wire, with one fp32 scale a block of 256.
#pragma once

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

inline constexpr int64_t kInt8Block = 256;

// A block's scale is its largest magnitude / 127; an element is round(x / scale), half to even. The
// ranks' blocks are decoded and summed in fp32 in rank order, and the sum is coded again. Blocks
// lie in parameters: each parameter begins one, and its last one is filled up with zeros, on the
// wire too. An element is off by at most half a scale of each rank's block and half of the sum's. A
// block with a NaN or an infinity becomes NaN.
// State:  none; what rounding loses is lost.
// Source: Dettmers 2015, arXiv:1511.04561; blocks and hops as in ZeRO++, Wang et al. 2023,
//         arXiv:2306.10209
class Int8Hook : public GradientHook {
 public:
  // Comm: 2(p-1)/p * 260 bytes a block: 1.016 bytes an element each way
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
};

}  // namespace trireme::parallel
