#include "trireme/base/random/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numbers>

#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <ATen/core/PhiloxRNGEngine.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/multiversion.h"

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

namespace {

// Philox4x32-10 of `blocks` consecutive indices. at::Philox4_32, which random_bits() uses, keeps
// the index in the upper half of its counter.
TRIREME_MULTIVERSION void fill_blocks(uint64_t key, uint64_t first_index, uint32_t* words,
                                      int64_t blocks) {
#pragma GCC ivdep
  for (int64_t i = 0; i < blocks; ++i) {
    const uint64_t index = first_index + static_cast<uint64_t>(i);
    uint32_t a = 0, b = 0, c = static_cast<uint32_t>(index), d = static_cast<uint32_t>(index >> 32);
    uint32_t key_low = static_cast<uint32_t>(key), key_high = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t left = uint64_t{0xD2511F53} * a;
      const uint64_t right = uint64_t{0xCD9E8D57} * c;
      a = static_cast<uint32_t>(right >> 32) ^ b ^ key_low;
      b = static_cast<uint32_t>(right);
      c = static_cast<uint32_t>(left >> 32) ^ d ^ key_high;
      d = static_cast<uint32_t>(left);
      key_low += 0x9E3779B9;
      key_high += 0xBB67AE85;
    }
    words[4 * i] = a;
    words[4 * i + 1] = b;
    words[4 * i + 2] = c;
    words[4 * i + 3] = d;
  }
}

}  // namespace

void fill_random_words(RandomKey key, uint64_t first_index, std::span<uint32_t> words) {
  const size_t blocks = words.size() / 4;
  fill_blocks(key.value, first_index, words.data(), static_cast<int64_t>(blocks));
  const std::span<uint32_t> rest = words.subspan(4 * blocks);
  if (rest.empty()) return;
  const auto last = random_bits(key, first_index + blocks);
  std::copy_n(last.begin(), rest.size(), rest.begin());
}

void fill_with_entropy(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(concat("no random bytes: ", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

std::string unique_name() {
  std::array<uint8_t, 16> bits;
  fill_with_entropy(bits);
  std::string name;
  for (const uint8_t byte : bits) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

}  // namespace trireme
