#include "trireme/model/experts/routing_counts.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme::model {

double RoutingCounts::max_violation() const {
  const double sum = std::reduce(assignments.begin(), assignments.end());
  return sum == 0
             ? 0
             : std::ranges::max(assignments) * static_cast<double>(assignments.size()) / sum - 1;
}

RoutingCounts routing_counts(std::span<const double> row) {
  TRIREME_ASSERT(std::ssize(row) > num_routing_counts(0), "a row of ", row.size(), " counts");
  const size_t E = row.size() - static_cast<size_t>(num_routing_counts(0));
  return {.assignments = row.first(E),
          .tokens = row[E],
          .dropped = row[E + 1],
          .entropy = row[E + 2],
          .balance_loss = row[E + 3],
          .z_loss = row[E + 4],
          .copied = row[E + 5]};
}

}  // namespace trireme::model
