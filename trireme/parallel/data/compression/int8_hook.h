// Sends gradients as int8, with one fp32 scale per block of 256.
#pragma once

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

inline constexpr int64_t kInt8Block = 256;

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
