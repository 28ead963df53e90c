// Assigns layers to stages, as evenly as their measured or estimated costs allow, or by hand.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::parallel {

struct LayerCost {
  double time = 1;         // of one microbatch, forward and backward, in any unit
  double memory = 0;       // bytes: weights, gradients, optimizer state
  double activations = 0;  // bytes of one microbatch
};

struct SplitOptions {
  int num_stages = 1;
  double memory_limit = std::numeric_limits<double>::infinity();  // bytes per stage
  // The most microbatches that each stage holds at one time (peak_activations()); empty: none.
  std::vector<double> held_microbatches = {};
};

// The number of layers of each stage, along the model; at least one each. Makes the slowest stage
// as fast as the memory limit allows. Among such splits it takes the most even one by the sum of
// squared stage times, and among equal ones that with more layers in earlier stages.
// Throws: ConfigError when there are fewer layers than stages, or when no split fits the memory
//         limit, with the memory that the best one needs
std::vector<int> split_layers(std::span<const LayerCost> layers, const SplitOptions& options);

// Each layer's place in its stage where only times decide the split.
// stages_per_rank: 0: the schedule's default
// Throws: as split_layers(), and ConfigError for what the schedule does not take
std::vector<int64_t> places_in_stages(std::span<const LayerCost> layers, std::string_view schedule,
                                      int64_t num_ranks, int64_t stages_per_rank);

// Applies split_layers() to measured stage times, giving each layer of a stage an equal part.
// Returns `counts` unchanged unless the slowest stage would become faster by more than `threshold`
// of its time, so that noise moves nothing. Repeated with new measurements, it settles. `memory`:
// one per layer, whose times are not read; empty: none.
std::vector<int> rebalance(const std::vector<int>& counts, std::span<const double> stage_times,
                           double threshold, std::span<const LayerCost> memory = {},
                           const SplitOptions& options = {});

// Checks `counts`, the number of layers of each stage as given by hand, and returns them.
// Throws: ConfigError unless there is one per stage, each is at least 1, they add up to the number
//         of layers, and each stage fits the memory limit
std::vector<int> split_by_hand(std::vector<int> counts, std::span<const LayerCost> layers,
                               const SplitOptions& options);

}  // namespace trireme::parallel
