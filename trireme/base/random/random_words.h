// random_bits() for many consecutive indices at once, with vector instructions. The numbers are the
// same and take less than half the time.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"

namespace trireme::inline internal {

// words[4 i + k] = random_bits(key, first_index + i)[k]. The last index may give fewer than four.
void fill_random_words(RandomKey key, uint64_t first_index, std::span<uint32_t> words);

// The same for any indices, on their device: word k of index i is at [..., k].
// Shapes: indices [...] int64 -> [..., 4] int64, each from 0 to 2^32 - 1
at::Tensor random_words(RandomKey key, const at::Tensor& indices);

}  // namespace trireme::inline internal
