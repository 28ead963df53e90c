// Random words by tensor operators, for devices other than the CPU, which has
// base/random/random_words.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"

namespace trireme::model::inline internal {

// random_bits() of each index, on the indices' device: word k of an index is at [..., k].
// Shapes: indices [...] int64 -> [..., 4] int64, each from 0 to 2^32 - 1
// Source: Salmon et al. 2011, doi:10.1145/2063384.2063405, Philox4x32-10
at::Tensor random_words(RandomKey key, const at::Tensor& indices);

}  // namespace trireme::model::inline internal
