// Embedding tables and the planner: their statistics in the data, and their placements, in its
// types; its placement of a run's tables as text, which rank 0 sends to the others and keeps in the
// run's folder, and compared with the run's measurements.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/dataset/source.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/table_config.h"
#include "trireme/plan/tables/table_search.h"
#include "trireme/plan/tables/table_statistics.h"

namespace trireme::tasks {

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

inline constexpr const char* kTableChoiceFile = "table_placements.json";

// Counts of one rank in a step of training.
struct RankLookUps {
  double look_ups = 0;  // rows read and gradients added
  double sent_bytes = 0;
};

struct TableChoice {
  std::vector<plan::TablePlace> places{};  // of each table
  std::vector<RankLookUps> predicted{};    // of each rank
};

TableChoice choice_of(const plan::TablePlan& plan);

// The text of kTableChoiceFile (docs/guide/planner.md).
std::string to_json(const TableChoice& choice, std::span<const parallel::TableConfig> tables);
// Throws: ConfigError, which begins with `source`, if the text is not a choice, or is one for other
//         tables or another number of ranks
TableChoice parse_choice(const std::string& text, const std::string& source,
                         std::span<const parallel::TableConfig> tables, int num_ranks);

// "26 tables: 20 by rows, 6 whole".
std::string describe(std::span<const plan::TablePlace> places);

// The mean counts per step of this rank's tables.
RankLookUps look_ups_of(const parallel::TableCounts& counts);
// The line for the user at the end of a run; "" for one rank or without look-ups.
// predicted: of each rank; empty if nothing was predicted
std::string compare_look_ups(std::span<const RankLookUps> measured,
                             std::span<const RankLookUps> predicted);

}  // namespace trireme::tasks
