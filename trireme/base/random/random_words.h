// random_bits() for many neighbouring indices at once, by the vector units: the same numbers in
// less than half the time.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/base/random/random.h"

namespace trireme {

// words[4 i + k] = random_bits(key, first_index + i)[k], for all of them; the last index may have
// fewer than its four.
void fill_random_words(RandomKey key, uint64_t first_index, std::span<uint32_t> words);

}  // namespace trireme
