#include "trireme/base/random/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include <ATen/core/PhiloxRNGEngine.h>

#include "trireme/base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trireme {
namespace {

constexpr double kTwoToMinus53 = 0x1.0p-53;

double unit_interval(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * kTwoToMinus53;
}

}  // namespace

RandomKey random_key(uint64_t seed, std::string_view name) {
  return {XXH3_64bits_withSeed(name.data(), name.size(), seed)};
}

std::array<uint32_t, 4> random_bits(RandomKey key, uint64_t index) {
  // Subsequence = index: each index owns one 128-bit block of the stream.
  at::Philox4_32 engine(key.value, index, 0);
  return {engine(), engine(), engine(), engine()};
}

double random_uniform(RandomKey key, uint64_t index) {
  const auto bits = random_bits(key, index);
  return unit_interval(bits[0], bits[1]);
}

double random_normal(RandomKey key, uint64_t index) {
  const auto bits = random_bits(key, index);
  // 1 - u lies in (0, 1], where the logarithm is finite.
  const double u = 1.0 - unit_interval(bits[0], bits[1]);
  const double v = unit_interval(bits[2], bits[3]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t random_permutation(RandomKey key, uint64_t index, uint64_t size) {
  TRIREME_ASSERT(index < size, index, " is not below ", size);
  constexpr int kRounds = 6;
  // Two halves of `half` bits each cover at least `size` values and at most 4 * size.
  const int half = std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t value = index;
  do {
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t input[2] = {right, static_cast<uint64_t>(round)};
      const uint64_t mixed = XXH3_64bits_withSeed(input, sizeof(input), key.value) & mask;
      const uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= size);
  return value;
}

}  // namespace trireme
