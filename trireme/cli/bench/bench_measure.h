// Times an operation that a group's ranks run together.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::cli::inline internal {

struct Timing {
  double median_microseconds = 0;
  double p99_microseconds = 0;
};

// How often an operation runs: `num_batches` batches of `batch` calls, each batch timed as a whole.
struct BatchPlan {
  int64_t batch = 1;
  int64_t num_batches = 1;
};

// Batches of at least 20 us, so that reading the clock (about 30 ns) does not matter. As many as
// fit `budget_seconds`, but at least five.
BatchPlan plan_batches(double operation_seconds, double budget_seconds);

// Median and 99th percentile (nearest rank) of the times of one operation.
Timing summarize(std::vector<double> microseconds);

// Warms up, then runs the operation in batches. All ranks meet in a barrier before each batch, and
// the time of a batch is that of its slowest rank. A rank that leaves early (a root that only
// sends) therefore does not make an operation look too fast. Ranks agree on every count.
// Collective: every rank, with an operation that matches on all
Timing measure(comm::Communicator& group, const std::function<void()>& operation,
               double budget_seconds);

}  // namespace trireme::cli::inline internal
