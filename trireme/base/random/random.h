// Counter-based random numbers. A value is a pure function of (key, index), so it is the same in
// every layout, on every rank and after every resume. There is no state, and the order of calls
// does not matter.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

// The key of one stream, derived from a seed and a name (a parameter's name, "data", "dropout/3").
// Streams with different names are independent.
struct RandomKey {
  uint64_t value = 0;
};
RandomKey random_key(uint64_t seed, std::string_view name);

// 128 random bits at position `index` of the stream `key`.
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox4x32-10)
std::array<uint32_t, 4> random_bits(RandomKey key, uint64_t index);

// Uniform in [0, 1) with 53 random bits.
double random_uniform(RandomKey key, uint64_t index);

// Standard normal (Box-Muller on the 128 bits of one index).
double random_normal(RandomKey key, uint64_t index);

// The position of `index` in a permutation of [0, size) chosen by `key`. O(1) memory, O(1) expected
// time.
// Source: Luby & Rackoff 1988 (Feistel network), with cycle walking for sizes that are not powers
//         of 4
uint64_t random_permutation(RandomKey key, uint64_t index, uint64_t size);

}  // namespace trireme
