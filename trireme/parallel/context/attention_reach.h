// Which tokens of its sequence a token reads in attention.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

struct AttentionReach {
  bool causal = true;  // itself and earlier tokens; false: later tokens too
  // Of those, only tokens with the same number. [B, T] int64, for the whole sequences, the same on
  // every rank. Undefined: the sequence is one document.
  at::Tensor documents_BT{};
};

}  // namespace trireme::parallel
