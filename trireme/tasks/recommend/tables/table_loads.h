// Embedding tables in the words of the planner: what data says of them, and where they may lie.
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

// How much of the data is read for the statistics of its tables.
struct SampleLimits {
  int64_t max_samples = int64_t{1} << 17;
  int64_t max_ids = int64_t{1} << 23;
};
using ReadProgress = std::function<void(int64_t done, int64_t total)>;

// The statistics of each column of ids, from the first samples in the order of training. A few
// seconds at most with these limits; the ids take 8 bytes each.
// source: as FeatureSource
// is_open: of each column; empty: of none. The rows of such a table are the parts into which it can
//          be split, and rows_in_use is what all samples are expected to use.
// Throws: ConfigError as the source
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
