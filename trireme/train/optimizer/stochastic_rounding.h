// Rounding to bf16 up or down by chance, in proportion to how near each is: the mean of many small
// updates survives, where rounding to the nearest would lose each of them.
// Source: Gupta et al. 2015, arXiv:1502.02551, section 3; for bf16 weights Zamirai et al. 2020,
//         arXiv:2010.06192
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"

namespace trireme::train {

// Rounds `exact` into `rounded`. The chance of an element is drawn by its index in the whole
// parameter, the first one's is `first`, so that every layout rounds alike.
// Shapes: exact fp32, rounded bf16, any shape, contiguous
void round_stochastically(const at::Tensor& exact, at::Tensor rounded, int64_t first,
                          RandomKey key);

}  // namespace trireme::train
