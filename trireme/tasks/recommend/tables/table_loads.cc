#include "trireme/tasks/recommend/tables/table_loads.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/base/error.h"
#include "trireme/dataset/sample_order.h"
#include "trireme/parallel/embedding/open/open_key.h"
#include "trireme/parallel/embedding/sums/sample_tree.h"

namespace trireme::tasks::inline internal {
namespace {

// The ids of one column, sample by sample.
struct Column {
  std::vector<int64_t> values{};
  std::vector<int64_t> offsets{0};
};

std::vector<Column> read_columns(const dataset::Source& source,
                                 const dataset::FeatureSchema& schema, uint64_t seed,
                                 const ReadProgress& on_progress, const SampleLimits& limits) {
  std::vector<Column> columns(schema.tables.size());
  const dataset::SampleOrder order(source.size(), seed, /*shuffle=*/true);
  const int64_t most = std::min(
      {limits.max_samples, source.size(), std::max<int64_t>(1, limits.max_ids / schema.num_ids())});
  for (int64_t n = 0; n < most; ++n) {
    const dataset::NamedTensors sample = source.get(order.index(n), std::nullopt);
    const at::Tensor ids = dataset::find_tensor(sample, "ids");
    const at::Tensor lengths = dataset::find_tensor(sample, "lengths");
    const auto* id = ids.const_data_ptr<int64_t>();
    const auto* const length = lengths.const_data_ptr<int64_t>();
    for (size_t c = 0; c < columns.size(); ++c) {
      columns[c].values.insert(columns[c].values.end(), id, id + length[c]);
      columns[c].offsets.push_back(std::ssize(columns[c].values));
      id += length[c];
    }
    constexpr int64_t kReportEvery = 4096;
    if (on_progress && n % kReportEvery == 0) on_progress(n, most);
  }
  return columns;
}

}  // namespace

plan::StepShape step_shape(int64_t global_batch, int num_ranks) {
  plan::StepShape shape{.samples_per_rank = (global_batch + num_ranks - 1) / num_ranks};
  shape.subtrees.clear();
  for (int rank = 0; rank < num_ranks; ++rank) {
    const mesh::Range samples = mesh::split_range(global_batch, num_ranks, rank);
    std::vector<int64_t> begins =
        parallel::subtrees_of(samples.offset, samples.offset + samples.size);
    for (int64_t& begin : begins) begin -= samples.offset;
    // One rank has no use for subtrees.
    if (begins.empty() || num_ranks == 1) begins = {0};
    shape.subtrees.push_back(std::move(begins));
  }
  return shape;
}

std::vector<plan::TableStatistics> measure_columns(const dataset::Source& source,
                                                   const dataset::FeatureSchema& schema,
                                                   uint64_t seed, const plan::StepShape& shape,
                                                   const ReadProgress& on_progress,
                                                   const SampleLimits& limits,
                                                   const std::vector<bool>& is_open) {
  std::vector<Column> columns = read_columns(source, schema, seed, on_progress, limits);
  std::vector<plan::TableStatistics> all;
  for (size_t c = 0; c < columns.size(); ++c) {
    Column column = std::exchange(columns[c], {});
    plan::SampledIds ids{.rows = schema.tables[c].rows};
    if (!is_open.empty() && is_open[c]) {
      ids.rows = parallel::kOpenRows;
      const double share =
          static_cast<double>(source.size()) /
          static_cast<double>(std::max<int64_t>(1, std::ssize(column.offsets) - 1));
      ids.rows_in_use = std::max(
          1.0,
          plan::expected_ids(column.values, static_cast<double>(column.values.size()) * share));
      for (int64_t& id : column.values) id = parallel::place_of_open_key(parallel::open_key(id));
    }
    ids.values = column.values;
    ids.offsets = column.offsets;
    all.push_back(plan::measure_table(ids, shape));
  }
  return all;
}

plan::TableLoad load_of(const parallel::TableConfig& table, parallel::RowRule rule,
                        c10::ScalarType dtype, const plan::TableStatistics& statistics) {
  using parallel::RowRule;
  const auto number_bytes = static_cast<double>(c10::elementSize(dtype));
  const bool is_adam = rule == RowRule::kAdam || rule == RowRule::kLazyAdam;
  return {.name = table.name,
          .rows = table.rows,
          .rows_in_use = statistics.rows_in_use,
          .width = table.width,
          .number_bytes = number_bytes,
          .states_per_number = is_adam                     ? 2.0
                               : rule == RowRule::kAdaGrad ? 1.0
                                                           : 0.0,
          // Exact Adam remembers the step of each row.
          .bytes_per_row = rule == RowRule::kRowWiseAdaGrad ? number_bytes
                           : rule == RowRule::kAdam         ? double{sizeof(int32_t)}
                                                            : 0.0,
          .may_split_columns = !table.is_open,
          .sums_squares = rule == RowRule::kRowWiseAdaGrad,
          .use = {statistics.use}};
}

mesh::Placement to_placement(const plan::TablePlace& place, int64_t rows, int num_ranks) {
  switch (place.split) {
    case plan::TableSplit::kReplicated: return mesh::Placement::replicated();
    case plan::TableSplit::kWhole: return parallel::whole_on(place.rank, rows, num_ranks);
    case plan::TableSplit::kRows: return mesh::Placement::sharded(0, place.cuts);
    case plan::TableSplit::kColumns: return mesh::Placement::sharded(1);
  }
  throw InternalError("a split of tables without a name");
}

}  // namespace trireme::tasks::inline internal
