// tables.placement = "auto": the planner places a run's tables.
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/source.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/tasks/recommend/table_planning.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks::inline internal {

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

}  // namespace trireme::tasks::inline internal
