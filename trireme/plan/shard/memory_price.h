// The best choices within a bound of memory, by a price for each byte.
#pragma once

#include <vector>

#include "trireme/plan/shard/shard_problem.h"

namespace trireme::plan {

struct PricedChoices {
  std::vector<int> choices{};
  double seconds = 0;
  double bound_seconds = 0;  // no choices within the memory take fewer
  double kept_bytes = 0;
};

// memory_bytes: 0: no bound, and the choices are the best if minimise() is exact
// The bound is the largest of a Lagrangian's minima over prices. Where all equal blocks change
// together, the first ones keep the dearer choices and the others the smaller ones.
// Source: Fisher 1981, doi:10.1287/mnsc.27.1.1
// Throws: ConfigError when no choices fit
PricedChoices choose_within(const ShardProblem& problem, double memory_bytes);

}  // namespace trireme::plan
