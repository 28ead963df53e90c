// Keys that are "auto" in a run whose layout is given: train.micro_batch, train.recompute. The cost
// model chooses values of both at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/plan/search/search.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

struct KeyChoice {
  train::RunConfig config;  // with the values
  plan::Plan plan{};
  int64_t num_candidates = 0;
};

// The fastest values that fit the memory of the cluster's devices. Microbatches are divisors of a
// rank's part of the batch. Recomputation is that of no block, or of the first N blocks of a stage,
// `selective` or `full`; if offload.activations is set, the inputs of the first M of them leave.
// Throws: ConfigError when none fits, and what the planner does not know
KeyChoice choose_keys(const train::RunConfig& config, const plan::Cluster& cluster, int num_ranks);

// The values in `chosen` of the keys that `given` leaves open, and of those that depend on them.
std::vector<train::Override> chosen_values(const train::RunConfig& given,
                                           const train::RunConfig& chosen);
// The same in words: "microbatch 4, recompute full of 3 blocks a stage, inputs of 2 on disk".
std::string describe_values(const train::RunConfig& given, const train::RunConfig& chosen);

}  // namespace trireme::cli
