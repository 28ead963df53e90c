// The embedding tables of a recommendation model, as the planner sees them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/plan/tables/table_search.h"
#include "trireme/plan/tables/table_statistics.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

struct MeasuredTables {
  std::vector<plan::TableLoad> loads{};
  std::vector<plan::TableStatistics> statistics{};  // of each table
};

// Measures samples of the prepared data in the config's folder (docs/planner.md).
// config: of the task "recommend"
// on_progress: called now and then; may be null
// Throws: ConfigError if the data cannot be used, InternalError for another task
MeasuredTables measure_tables(train::RunConfig& config, int num_ranks,
                              const std::function<void(int64_t done, int64_t total)>& on_progress);

// The same without samples: the ids of every table follow Zipf's law with this exponent, and a
// sample has the mean of the fewest and the most ids.
MeasuredTables assume_tables(train::RunConfig& config, int num_ranks, double exponent);

// What a rank holds besides its tables: weights, gradients and states of the dense layers.
// config: resolved, its data open
double dense_bytes(const train::RunConfig& config);

}  // namespace trireme::tasks
