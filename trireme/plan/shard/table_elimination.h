// Eliminates all variables of a MinSum, whatever the number of their neighbours.
#pragma once

#include <optional>
#include <vector>

#include "trireme/plan/shard/min_sum.h"

namespace trireme::plan {

// The entries of all tables that eliminate() would make.
double elimination_entries(const MinSum& problem);
// The best choices. Nothing when it would make more entries than that.
std::optional<std::vector<int>> eliminate(const MinSum& problem, double most_entries);

}  // namespace trireme::plan
