// The gradient hook that adds gradients by pairwise projection.
#pragma once

#include <cstdint>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

// p g_i is the mean gradient of rank i's samples where ranks have equally many. Each parameter's
// gradient becomes adasum(p g_0, p g_1, ...) (comm/numbers/adasum.h): a tree over the ranks in
// their order, for any number of ranks. Ranks with the same gradient get it, as from a mean;
// orthogonal ones are summed, p times what the mean would be.
// Rank r adds up its part of every parameter, computed in fp32 (fp64 for fp64 gradients); the dot
// products of all parts are summed in rank order. The result is rounded to the gradient's dtype.
// State:  none.
// Source: Maleki et al. 2020, arXiv:2006.02924 (Adasum)
class AdasumHook : public GradientHook {
 public:
  // Comm: two hops of (p-1)/p * n bytes, and per bucket and level of the tree, of which there are
  //       ceil(log2 p), an all-reduce of 24 bytes per parameter and pair
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
};

}  // namespace trireme::parallel
