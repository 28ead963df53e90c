// Where the weight parts of split backwards go: into the gaps of an order of forwards and input
// parts.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// What an action adds to the activations that its rank holds: 1 is one microbatch on one stage.
double activation_change(const Action& action, double kept_for_weight);

// The cheapest by options.costs of `orders`, each filled with weight parts in several ways: into a
// gap that is long enough, or nearly; where memory_limit leaves no room for a forward; the rest at
// the end. `orders` hold forwards and input parts alone.
// Throws: ConfigError when no order can be kept within memory_limit
// Source: Qi et al. 2023, arXiv:2401.10241, section 4
Schedule fill_weight_parts(const std::vector<Schedule>& orders, const ScheduleOptions& options);

}  // namespace trireme::parallel
