// Shared by the hand-written loops: sums in fixed lanes, and an exponential that the compiler can
// vectorise. The bits are the same for every instruction set, because the source separates the
// lanes and no operations are contracted.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "trireme/base/machine/multiversion.h"

namespace trireme {

// The type that loops read and write for a `scalar` of a tensor. They see a bf16, the upper half of
// a float, as its bits: GCC does not vectorise loops over c10::BFloat16. A number of two bytes is
// taken for a bf16, so these loops do not know fp16.
template <typename scalar>
using stored_t = std::conditional_t<sizeof(scalar) == 2, uint16_t, scalar>;
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

template <typename stored>
TRIREME_INLINE wide_t<stored> widen(stored x) {
  if constexpr (sizeof(stored) == 2) {
    return std::bit_cast<float>(uint32_t{x} << 16);
  } else {
    return x;
  }
}

// Rounds to the nearest, ties to even; NaN stays NaN.
template <typename stored>
TRIREME_INLINE stored narrow(wide_t<stored> x) {
  if constexpr (sizeof(stored) == 2) {
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
  for (int j = 1; j < kLanes; ++j) lanes[0] = lanes[0] > lanes[j] ? lanes[0] : lanes[j];
  return lanes[0];
}

TRIREME_INLINE double fast_exp(double x) { return std::exp(x); }

// e^x within 2 ULP: 2^n times a polynomial on [-ln2/2, ln2/2]; clamped to normal results.
// Source: Moshier, Cephes mathematical library, expf (range reduction and coefficients)
TRIREME_INLINE float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

}  // namespace trireme
