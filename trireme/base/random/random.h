// Random numbers: those that a run reproduces, and those that nobody can foretell.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Counter-based random numbers. A value is a pure function of (key, index), so it is the same in
// every layout, on every rank and after every resume. There is no state, and the order of calls
// does not matter.

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

// random_bits() for many consecutive indices at once, with vector instructions. The numbers are the
// same and take less than half the time.

// words[4 i + k] = random_bits(key, first_index + i)[k]. The last index may give fewer than four.
void fill_random_words(RandomKey key, uint64_t first_index, std::span<uint32_t> words);

// Random bytes from the kernel, for unique names and for secrets. Never for numbers that a run must
// reproduce (random.h).

// Throws: Error when the kernel gives none
void fill_with_entropy(std::span<uint8_t> bytes);

// 128 random bits as 32 hexadecimal digits: a name that no process on any host makes twice.
std::string unique_name();

}  // namespace trireme
