// Shared by the hand-written loops: sums in fixed lanes, and an exponential that the compiler can
// vectorise. The bits are the same for every instruction set, because the source separates the
// lanes and no operations are contracted.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <c10/util/Half.h>

#include "trireme/base/machine/multiversion.h"

namespace trireme {

// The bits of an fp16.
enum class fp16_t : uint16_t {};

// The type that loops read and write for a `scalar` of a tensor. They see a bf16, the upper half of
// a float, and an fp16 as their bits: GCC does not vectorise loops over c10::BFloat16 and
// c10::Half. Other numbers of two bytes are taken for a bf16.
template <typename scalar>
using stored_t = std::conditional_t<std::is_same_v<scalar, c10::Half>, fp16_t,
                                    std::conditional_t<sizeof(scalar) == 2, uint16_t, scalar>>;
// The type in which they compute.
template <typename stored>
using wide_t = std::conditional_t<sizeof(stored) == 2, float, stored>;

// The elements of a contiguous tensor of libtorch, which throws if their type is another.
template <typename scalar, typename Tensor>
const stored_t<scalar>* stored_in(const Tensor& tensor) {
  return reinterpret_cast<const stored_t<scalar>*>(tensor.template const_data_ptr<scalar>());
}
template <typename scalar, typename Tensor>
stored_t<scalar>* stored_out(const Tensor& tensor) {
  return reinterpret_cast<stored_t<scalar>*>(tensor.template mutable_data_ptr<scalar>());
}

// Exact. No step makes a subnormal float, which some processors compute slowly or as zero.
TRIREME_INLINE float widen_fp16(uint32_t half) {
  const uint32_t exponent = half & 0x7c00, fraction = half & 0x03ff;
  constexpr uint32_t kBias = (127 - 15) << 23;
  const uint32_t normal = ((half & 0x7fff) << 13) + (exponent == 0x7c00 ? 2 * kBias : kBias);
  const auto subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(fraction)) * 0x1p-24f);
  return std::bit_cast<float>((exponent == 0 ? subnormal : normal) | (half & 0x8000) << 16);
}

// To the nearest, ties to even; from 65,520 on infinite; NaN stays NaN.
TRIREME_INLINE uint32_t narrow_fp16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - ((127 - 15) << 23)) >> 13;
  // A float in [0.5, 1) has the distance of fp16's subnormal numbers.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
  const uint32_t infinite = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  return (magnitude < 0x477ff000 ? finite : infinite) | (bits >> 16 & 0x8000);
}

template <typename stored>
TRIREME_INLINE wide_t<stored> widen(stored x) {
  if constexpr (std::is_same_v<stored, fp16_t>) {
    return widen_fp16(static_cast<uint16_t>(x));
  } else if constexpr (sizeof(stored) == 2) {
    return std::bit_cast<float>(uint32_t{x} << 16);
  } else {
    return x;
  }
}

// Rounds to the nearest, ties to even; NaN stays NaN.
template <typename stored>
TRIREME_INLINE stored narrow(wide_t<stored> x) {
  if constexpr (std::is_same_v<stored, fp16_t>) {
    return static_cast<fp16_t>(narrow_fp16(x));
  } else if constexpr (sizeof(stored) == 2) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return static_cast<stored>(x == x ? rounded : 0x7fc0);
  } else {
    return x;
  }
}

inline constexpr int kLanes = 32;

// Sum of term(0) .. term(n - 1). Lane j takes every kLanes-th term, then the lanes fold in halves.
// The order is the same for every instruction set.
template <typename scalar, typename Term>
TRIREME_INLINE scalar lane_sum(int64_t n, const Term& term) {
  scalar lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (int j = 0; i + j < n; ++j) lanes[j] += term(i + j);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

template <typename scalar>
TRIREME_INLINE scalar lane_max(int64_t n, const scalar* x) {
  scalar lanes[kLanes];
  for (int j = 0; j < kLanes; ++j) lanes[j] = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = lanes[j] > x[i + j] ? lanes[j] : x[i + j];
  }
  for (int j = 0; i + j < n; ++j) lanes[j] = lanes[j] > x[i + j] ? lanes[j] : x[i + j];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j)
      lanes[j] = lanes[j] > lanes[j + width] ? lanes[j] : lanes[j + width];
  }
  return lanes[0];
}

TRIREME_INLINE double fast_exp(double x) { return std::exp(x); }

// e^x within 2 ULP: 2^n times a polynomial on [-ln2/2, ln2/2]; clamped to normal results. Fused
// operations round once wherever they run; a processor without them computes them slowly.
// Source: Moshier, Cephes mathematical library, expf (range reduction and coefficients)
TRIREME_INLINE float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = std::fma(x, 1.44269504088896341f, kRound);
  const float n = shifted - kRound;
  const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, x));
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

}  // namespace trireme
