// The last linear layer and the cross-entropy in one, a few hundred tokens at a time, so that the
// logits of all tokens never exist together; the vocabulary may be split over the tensor axis, and
// then no rank ever has the logits of all of it either.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// Targets equal to this are left out of sum and count.
inline constexpr int64_t kIgnoredTarget = -100;

// A loss is a sum and the number of its terms, never a mean: sums add up over microbatches and
// ranks.
struct Loss {
  at::Tensor sum;     // scalar fp64 in every precision, differentiable, backward once
  int64_t count = 0;  // targets that counted
};

struct CrossEntropyOptions {
  // Tokens whose logits exist at once; the result's rounding follows it.
  int64_t chunk_tokens = 256;
  TensorAxis axis{};
  int64_t first_row = 0;   // of the vocabulary that this rank's weight begins with
  int64_t vocab_size = 0;  // V; 0: this rank has all of it
};

// Sum over tokens of -log softmax(x W^T)[target], in fp64, and the number of targets that counted;
// both the same on every rank of the axis. When a gradient is wanted it is computed here, chunk by
// chunk, and only scaled in backward, which runs once. The sum is taken in token order, whatever
// the number of threads.
// Shapes:     x as the layers hold it, [..., D] or with axis.sequence [s, D]; w_vD [v, D];
//             targets_BT [...] int64, S of them -> scalar
// Memory:     chunk_tokens * v elements, plus the two gradients
// Comm:       24 bytes a token from each rank to all, and n = S*D*itemsize in fp32 or fp64: forward
//             2(p-1)/p * n for x's gradient; with axis.sequence 2(p-1)/p * n (x, its gradient)
// Collective: every rank of the axis, with the same targets
// Throws:     ConfigError when a target is neither in [0, V) nor kIgnoredTarget
// Source:     Wijmans et al. 2024, arXiv:2411.09009, section 4 (the idea; blocks over tokens
//             alone); over ranks: Shoeybi et al. 2019, arXiv:1909.08053, section 3
Loss linear_cross_entropy(const at::Tensor& x, const at::Tensor& w_vD, const at::Tensor& targets_BT,
                          const CrossEntropyOptions& options = {});

}  // namespace trireme::parallel
