// What a frozen model says of the next token, made short: its most probable tokens with their
// log-probabilities, and the probability of all others together. Nothing here is differentiated.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/linear_head.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

struct TopOutputs {
  at::Tensor tokens_Sk;   // int64, ascending in each row
  at::Tensor log_p_Sk;    // their log-probabilities; fp64 or fp32
  at::Tensor log_rest_S;  // log of the probability of all other tokens; -inf where there are none
};

struct TopOptions {
  int64_t top_k = 1;         // k in [1, V]
  double temperature = 1;    // T > 0: the distribution is softmax(logits / T)
  int64_t chunk_tokens = 0;  // as DistillationOptions
  TensorAxis axis{};
  int64_t first_row = 0;   // of the vocabulary, where this rank's weights begin
  int64_t vocab_size = 0;  // V; 0: this rank has the whole vocabulary
};

// The same on every rank of the axis. Of tokens with equal probabilities any may be left out.
// Shapes:     head.x of `num_tokens` tokens -> TopOutputs in fp64
// Memory:     chunk_tokens * v elements in fp32 at least, three times
// Comm:       16 (k + 1) bytes per token from each rank to all; with axis.sequence (p-1)/p of x
// Collective: every rank of the axis
TopOutputs linear_top_outputs(const LinearHead& head, int64_t num_tokens,
                              const TopOptions& options);

}  // namespace trireme::parallel
