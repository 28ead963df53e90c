// The arithmetic on parameters' elements. Elementwise updates run in pieces: on a CPU within the
// caches and on several threads, on a GPU whole. Pieces begin at multiples of 64 elements of their
// tensor, which every vector width divides. An element is therefore always in a full vector, or
// always among the parameter's last few elements. Its bits do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"
#include "trireme/mesh/box_runs.h"
#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train {

// Flat pieces of items with equal settings, for one call of a fused kernel.
struct PieceBatch {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> gradients;           // converted_gradient()
  std::vector<std::vector<at::Tensor>> state;  // [state][piece]
  std::vector<at::Tensor> rounded;             // as UpdateItem's; some undefined
  double weight_decay = 0;
  double rate_scale = 1;
};

// Calls `kernel` until every element of `items` was in one batch. On a CPU several calls run at
// once, each on one thread. Gradients are converted, and weights rounded, one batch at a time.
// Throws: InternalError when items have different numbers of states
void update_elementwise(std::span<const UpdateItem> items,
                        const std::function<void(PieceBatch&)>& kernel);

// Rounds to bf16 up or down by chance, the nearer value being more likely. The mean of many small
// updates survives, while rounding to nearest would lose each of them.
// Source: Gupta et al. 2015, arXiv:1502.02551, section 3; for bf16 weights Zamirai et al. 2020,
//         arXiv:2010.06192
// Rounds `exact` into `rounded`: elements of a part of a parameter, from `first` on, where `part`
// says where its elements are in the whole. Each element's random number depends on its index
// there, so every layout rounds alike.
// Shapes: exact fp32, rounded bf16, any shape, contiguous
void round_stochastically(const at::Tensor& exact, at::Tensor rounded, const mesh::BoxRuns& part,
                          int64_t first, RandomKey key);

}  // namespace trireme::train
