// The layers of an image model that is a chain of equal blocks, with embeddings before the first
// and a head after the last, as pipelines divide them.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

// One block per layer. Costs has a number for the embeddings, a block and the head.
// states: bytes of weights, gradients and optimizer states on a rank
// kept_by: the bytes that a forward keeps under a plan of all blocks
template <typename Costs, typename KeptBy>
std::vector<parallel::LayerCost> block_costs(const train::RunConfig& config, int64_t num_blocks,
                                             const Costs& flops, const Costs& states,
                                             const KeptBy& kept_by) {
  const model::RecomputePlan recompute = config.recompute_plan();
  const Costs kept = kept_by(recompute);
  std::vector<parallel::LayerCost> costs(
      static_cast<size_t>(num_blocks),
      {.time = flops.block, .memory = states.block, .activations = kept.block});
  costs.front().time += flops.embeddings;
  costs.front().memory += states.embeddings;
  costs.front().activations += kept.embeddings;
  costs.back().time += flops.head;
  costs.back().memory += states.head;
  costs.back().activations += kept.head;
  if (recompute.num_blocks >= num_blocks) return costs;
  const train::ParallelConfig& axes = config.parallel;
  const std::vector<int64_t> places =
      parallel::places_in_stages(costs, axes.schedule, axes.pipeline, axes.stages_per_rank);
  for (size_t i = 0; i < costs.size(); ++i) {
    if (places[i] >= recompute.num_blocks) costs[i].activations += kept_by({}).block - kept.block;
  }
  return costs;
}

}  // namespace trireme::tasks
