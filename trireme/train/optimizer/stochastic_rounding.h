// Rounds to bf16 up or down by chance, the nearer value being more likely. The mean of many small
// updates survives, while rounding to nearest would lose each of them.
// Source: Gupta et al. 2015, arXiv:1502.02551, section 3; for bf16 weights Zamirai et al. 2020,
//         arXiv:2010.06192
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"

namespace trireme::train::inline internal {

// Rounds `exact` into `rounded`. Each element's random number depends on its index in the whole
// parameter (`first` is that of the first element), so every layout rounds alike.
// Shapes: exact fp32, rounded bf16, any shape, contiguous
void round_stochastically(const at::Tensor& exact, at::Tensor rounded, int64_t first,
                          RandomKey key);

}  // namespace trireme::train::inline internal
