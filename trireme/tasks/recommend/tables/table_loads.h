// Embedding tables in the planner's types: their statistics in the data, and their placements.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/dataset/source.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/table_config.h"
#include "trireme/plan/tables/table_search.h"
#include "trireme/plan/tables/table_statistics.h"

namespace trireme::tasks::inline internal {

// The samples of a step on each of `num_ranks` ranks.
plan::StepShape step_shape(int64_t global_batch, int num_ranks);

// Limits on the data that is read for statistics.
struct SampleLimits {
  int64_t max_samples = int64_t{1} << 17;
  int64_t max_ids = int64_t{1} << 23;
};
using ReadProgress = std::function<void(int64_t done, int64_t total)>;

// Measures each column of ids over the first samples in the order of training. With these limits it
// takes a few seconds at most, and 8 bytes per id.
// source: like FeatureSource
// is_open: for each column; empty if none is. For such a column, the rows are the parts into which
//          the table can be split, and rows_in_use is the expected number of ids in all samples.
// Throws: ConfigError, like the source
std::vector<plan::TableStatistics> measure_columns(const dataset::Source& source,
                                                   const dataset::FeatureSchema& schema,
                                                   uint64_t seed, const plan::StepShape& shape,
                                                   const ReadProgress& on_progress = {},
                                                   const SampleLimits& limits = {},
                                                   const std::vector<bool>& is_open = {});

// dtype: of the rows
plan::TableLoad load_of(const parallel::TableConfig& table, parallel::RowRule rule,
                        c10::ScalarType dtype, const plan::TableStatistics& statistics);

mesh::Placement to_placement(const plan::TablePlace& place, int64_t rows, int num_ranks);

}  // namespace trireme::tasks::inline internal
