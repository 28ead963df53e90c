// What a language model's last layer says of known tokens, without a gradient.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/linear_distillation.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

struct TokenScoreOptions {
  TensorAxis axis{};
  int64_t first_row = 0;  // of the vocabulary, where this rank's weights begin
  int64_t chunk_tokens = 64;
};

// The log probability of each target, the likeliest token in its place (of equal ones the first),
// and the log probability of that, in nats. Softmax is in fp64.
// Shapes:     head.x [n, D]; targets_n [n] int64, kIgnoredTarget where nothing is asked
//             -> [n, 3] fp64, 0 where nothing is asked
// Comm:       32 bytes per target from each rank to all
// Collective: every rank of the axis
at::Tensor token_scores(const LinearHead& head, const at::Tensor& targets_n,
                        const TokenScoreOptions& options = {});

}  // namespace trireme::parallel
