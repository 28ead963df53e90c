// The cost of each layer of a language model: time, and the memory of its states and activations.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/workload.h"

namespace trireme::plan {

// The cost of every layer. The embedding counts with the first layer and the head with the last.
// Time is that of the matrix products, in any unit. Memory is that of one rank, the one with most
// experts: weights, gradients and optimizer states as the axes and ZeRO divide them, and the
// tensors that one microbatch's forward keeps for its backward. With expert ranks it is the rank
// that gets expert_skew times the mean of the tokens.
// stores_scores: attention keeps its scores and their dropout, as composed of products.
// Excludes what is temporary (buckets, gathered weights) and libtorch itself.
// Source: activations as counted in Korthikanti et al. 2022, arXiv:2205.05198, section 4, for these
//         layers (docs/models.md says what each keeps)
std::vector<parallel::LayerCost> layer_costs(const Workload& work, bool stores_scores = false,
                                             double expert_skew = 1);

}  // namespace trireme::plan
