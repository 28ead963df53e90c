// Codes for fp32 numbers in few bits each, with scales for each block of 256.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"

namespace trireme::parallel {

inline constexpr int64_t kWireBlock = 256;

enum class WireCode {
  kFloat32,  // as it is
  // A whole number from -m to m times the block's scale, which is its largest magnitude / m.
  // m = 127. Source: Dettmers 2015, arXiv:1511.04561
  kInt8,
  kInt4,  // m = 7
  kInt2,  // m = 1. Stochastic: Wen et al. 2017, arXiv:1705.07878 (TernGrad)
  // A sign and one of two magnitudes: the mean of the block's magnitudes up to their mean, and of
  // those above. The squared error never exceeds the squares of the numbers.
  kTwoBits,
  // A sign; the magnitude is the root of the block's mean square, which keeps the norm. The error
  // may exceed the numbers. Zero has the sign +.
  // Source: Tang et al. 2021, arXiv:2102.02888 (1-bit Adam), whose block is the whole tensor
  kSign,
};

enum class WireRounding {
  kNearest,  // half to even
  // Up with the probability of the fraction: the code's mean is the number.
  kStochastic,
};

// Bytes of `count` numbers: the blocks' scales, fp32, then the packed codes. A block takes 1024,
// 260, 132, 68, 72 and 36 bytes in the order of WireCode. The last block may be shorter.
int64_t coded_bytes(WireCode code, int64_t count);

// The same on every machine with the same vector instructions; no result depends on threads.
// rounding: of kInt8, kInt4 and kInt2
// key:      of the stochastic rounding; number i takes the random word i
// Shapes:   x [n] fp32, finite -> [coded_bytes(code, n)] uint8
at::Tensor encode_values(WireCode code, WireRounding rounding, const at::Tensor& x, RandomKey key);
// Shapes: bytes [coded_bytes(code, count)] uint8 -> [count] fp32, finite
// Throws: CommError when a number or a scale is not finite, or a scale is negative or too large
at::Tensor decode_values(WireCode code, const at::Tensor& bytes, int64_t count);

}  // namespace trireme::parallel
