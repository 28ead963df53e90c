// random_bits() for many consecutive indices at once, with vector instructions. The numbers are the
// same and take less than half the time.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/base/random/random.h"

namespace trireme::inline internal {

// words[4 i + k] = random_bits(key, first_index + i)[k]. The last index may give fewer than four.
void fill_random_words(RandomKey key, uint64_t first_index, std::span<uint32_t> words);

}  // namespace trireme::inline internal
