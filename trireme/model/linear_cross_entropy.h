// The last linear layer and the cross-entropy in one, a few hundred tokens at a time, so that the
// logits of all tokens never exist together.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/model/model.h"

namespace trireme::model {

struct CrossEntropyOptions {
  int64_t chunk_tokens =
      256;  // tokens whose logits exist at once; the result's rounding follows it
};

// Sum over tokens of -log softmax(x W^T)[target], in fp64, and the number of targets that counted.
// When a gradient is wanted it is computed here, chunk by chunk, and only scaled in backward, which
// runs once. The sum is taken in token order, whatever the number of threads.
// Shapes:  x_BTD [..., D], w_VD [V, D], targets_BT [...] int64 -> scalar
// Memory:  chunk_tokens * V elements, plus the two gradients
// Throws:  ConfigError when a target is neither in [0, V) nor kIgnoredTarget
// Source:  Wijmans et al. 2024, arXiv:2411.09009, section 4 (the idea; blocks over tokens alone)
Loss linear_cross_entropy(const at::Tensor& x_BTD, const at::Tensor& w_VD,
                          const at::Tensor& targets_BT, CrossEntropyOptions options = {});

}  // namespace trireme::model
