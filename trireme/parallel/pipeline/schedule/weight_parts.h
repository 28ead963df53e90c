// Places the weight parts of split backwards into the gaps of an order of forwards and input parts.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel::inline internal {

// How much an action changes the activations that its rank holds. 1 is one microbatch on one stage.
double activation_change(const Action& action, double kept_for_weight);

// Fills each of `orders` with weight parts in several ways and returns the cheapest by
// options.costs. Weight parts go into gaps that are long enough or nearly so, and to places where
// memory_limit leaves no room for a forward. The rest go to the end. `orders` contain only forwards
// and input parts.
// Throws: ConfigError when no order fits within memory_limit
// Source: Qi et al. 2023, arXiv:2401.10241, section 4
Schedule fill_weight_parts(const std::vector<Schedule>& orders, const ScheduleOptions& options);

}  // namespace trireme::parallel::inline internal
