// Runs elementwise updates in pieces: on a CPU within the caches and on several threads, on a GPU
// whole. Pieces begin at multiples of 64 elements of their tensor, which every vector width
// divides. An element is therefore always in a full vector, or always among the parameter's last
// few elements. Its bits do not depend on the number of threads.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

// Flat pieces of items with equal settings, for one call of a fused kernel.
struct PieceBatch {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> gradients;           // in the dtype of the weights
  std::vector<std::vector<at::Tensor>> state;  // [state][piece]
  double weight_decay = 0;
  double rate_scale = 1;
};

// Calls `kernel` until every element of `items` was in one batch. On a CPU several calls run at
// once, each on one thread. Gradients of another dtype are converted one batch at a time.
// Throws: InternalError when items have different numbers of states
void update_elementwise(std::span<const UpdateItem> items,
                        const std::function<void(PieceBatch&)>& kernel);

}  // namespace trireme::train::inline internal
