// The embedding tables of a recommendation model, as the planner sees them. tables.placement =
// "auto": the planner places a run's tables.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/source.h"
#include "trireme/plan/tables/table_search.h"
#include "trireme/plan/tables/table_statistics.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

struct MeasuredTables {
  std::vector<plan::TableLoad> loads{};
  std::vector<plan::TableStatistics> statistics{};  // of each table
};

// Measures samples of the prepared data in the config's folder (docs/guide/planner.md).
// config: of the task "recommend"
// on_progress: called now and then; may be null
// Throws: ConfigError if the data cannot be used, InternalError for another task
MeasuredTables measure_tables(train::RunConfig& config, int num_ranks,
                              const std::function<void(int64_t done, int64_t total)>& on_progress);

// The same without samples: the ids of every table follow Zipf's law with this exponent, and a
// sample has the mean of the fewest and the most ids.
MeasuredTables assume_tables(train::RunConfig& config, int num_ranks, double exponent);

// Memory of a rank besides its tables: weights, gradients and optimizer states of the dense layers.
// config: resolved, its data open
double dense_bytes(const train::RunConfig& config);

// See measure_tables() of table_planning.h.
MeasuredTables measure_tables(const RecommendProblem& problem, const dataset::Source& training,
                              const train::RunConfig& config, int num_ranks,
                              const std::function<void(int64_t, int64_t)>& on_progress = {});

// A run that has already begun in output.folder keeps its placements if it had the same tables and
// as many ranks. Otherwise rank 0 measures the data and plans for ranks on CPUs that have equal
// parts of their host's memory.
// dense_bytes: what a rank holds besides its tables
// Comm:       the choice from rank 0 to all
// Collective: every rank of `group`; the same choice on all of them
// Throws:     ConfigError on every rank if the tables do not fit
TableChoice choose_tables(const RecommendProblem& problem, const dataset::Source& training,
                          const train::RunConfig& config, double dense_bytes,
                          comm::Communicator& group);

}  // namespace trireme::tasks
