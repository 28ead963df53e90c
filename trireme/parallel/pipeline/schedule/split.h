// Which layers make which stage: as even as their measured or estimated costs allow, or by hand.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace trireme::parallel {

struct LayerCost {
  double time = 1;         // of one microbatch, all parts, in any one unit
  double memory = 0;       // bytes: weights, gradients, optimizer state
  double activations = 0;  // bytes of one microbatch
};

struct SplitOptions {
  int num_stages = 1;
  double memory_limit = std::numeric_limits<double>::infinity();  // bytes a stage
  // The most microbatches that a stage holds at one time (peak_activations()); empty: none.
  std::vector<double> held_microbatches = {};
};

// The number of layers of each stage, along the model; each has at least one. The slowest stage is
// as fast as it can be within the memory limit; of such splits the most even one, by the sum of
// squared stage times, and of equal ones the one with more layers in earlier stages.
// Throws: ConfigError when there are fewer layers than stages, or when no split fits the memory
//         limit: says how much the best one needs
std::vector<int> split_layers(std::span<const LayerCost> layers, const SplitOptions& options);

// What split_layers() makes of measured stage times: each layer of a stage took an equal part of
// it. `counts` unchanged unless the slowest stage would become faster by more than `threshold` of
// its time, so that a little noise moves nothing. Repeated with new measurements it comes to rest.
// `memory`: one a layer, whose times are not read; empty: none.
std::vector<int> rebalance(const std::vector<int>& counts, std::span<const double> stage_times,
                           double threshold, std::span<const LayerCost> memory = {},
                           const SplitOptions& options = {});

// `counts` as the number of layers of each stage, given by hand.
// Throws: ConfigError unless there is one a stage, each at least 1, they sum to the layers, and
//         each stage fits the memory limit
std::vector<int> split_by_hand(std::vector<int> counts, std::span<const LayerCost> layers,
                               const SplitOptions& options);

}  // namespace trireme::parallel
