#include "trireme/tasks/recommend/recommend_problem.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/tasks/recommend/tables/planned_tables.h"

namespace trireme::tasks {
namespace {

// number: the table's index among all
mesh::Placement placement_of(TablePlacement placement, int64_t number, int64_t rows,
                             int num_ranks) {
  switch (placement) {
    case TablePlacement::kReplicated: return mesh::Placement::replicated();
    case TablePlacement::kAuto:  // until the planner has chosen
    case TablePlacement::kRows: return mesh::Placement::sharded(0);
    case TablePlacement::kColumns: return mesh::Placement::sharded(1);
    case TablePlacement::kWhole:
      return parallel::whole_on(static_cast<int>(number % num_ranks), rows, num_ranks);
  }
  throw InternalError("a placement of tables without a name");
}

class ListMaker {
 public:
  ListMaker(const RecommendProblem& problem, int num_ranks)
      : problem_(problem), num_ranks_(num_ranks) {}

  void add(const std::string& prefix, int64_t column, int64_t width) {
    const dataset::FeatureTable& feature = problem_.schema.tables[static_cast<size_t>(column)];
    const TablesConfig& config = problem_.config.tables;
    const bool is_open = problem_.is_open(column);
    const int64_t rows = is_open ? parallel::kOpenRows : feature.rows;
    parallel::TableConfig table{.name = concat(prefix, ".", feature.name),
                                .rows = rows,
                                .width = width,
                                .pooling = config.pooling,
                                .placement = placement(rows),
                                .initial_scale = config.initial_scale,
                                .is_open = is_open};
    if (is_open) {
      table.open_max_rows = config.open_max_rows;
      table.open_when_full = config.open_when_full;
      table.open_halve_steps = config.open_halve_steps;
      table.open_expire_steps = config.open_expire_steps;
      table.open_min_uses = config.open_min_uses;
    }
    list_.tables.push_back(std::move(table));
    list_.columns.push_back(column);
  }
  TableList take() { return std::move(list_); }

 private:
  // The next table's.
  mesh::Placement placement(int64_t rows) const {
    const size_t number = list_.tables.size();
    const std::vector<plan::TablePlace>& chosen = problem_.choice.places;
    if (!chosen.empty()) return to_placement(chosen[number], rows, num_ranks_);
    return placement_of(problem_.config.tables.placement, static_cast<int64_t>(number), rows,
                        num_ranks_);
  }

  const RecommendProblem& problem_;
  int num_ranks_;
  TableList list_;
};

// The rows of the rank with the most; of an open table its parts.
int64_t most_rows(const parallel::TableConfig& table, int num_ranks) {
  const std::vector<int64_t>& cuts = table.placement.cuts;
  if (table.placement.kind == mesh::Placement::Kind::kReplicated) return table.rows;
  int64_t most = cuts.empty() ? (table.rows + num_ranks - 1) / num_ranks : 0;
  for (size_t r = 1; r < cuts.size(); ++r) most = std::max(most, cuts[r] - cuts[r - 1]);
  return most;
}

// Memory of an open table on the rank with most of its parts; the memory doubles when it is full.
// Without a limit on rows, the maximum, so that the table goes to disk.
int64_t most_open_bytes(const parallel::TableConfig& table, int num_ranks, int64_t row_bytes) {
  if (table.open_max_rows == 0) return kMaxMemory;
  const double share =
      static_cast<double>(most_rows(table, num_ranks)) / static_cast<double>(parallel::kOpenRows);
  const double bytes =
      2 * share * static_cast<double>(table.open_max_rows) * static_cast<double>(row_bytes);
  return bytes < static_cast<double>(kMaxMemory) ? static_cast<int64_t>(bytes) : kMaxMemory;
}

// Bytes of a table on the rank with the most rows or columns. When a table is split by columns, a
// row-wise rule keeps its number for every row on each rank.
int64_t most_bytes(const parallel::TableConfig& table, parallel::RowRule rule, int num_ranks,
                   int64_t bytes_per_number) {
  const auto row_bytes = [&](int64_t width) {
    return (width + parallel::numbers_of_states(rule, width)) * bytes_per_number;
  };
  if (table.is_open) return most_open_bytes(table, num_ranks, row_bytes(table.width));
  const mesh::Placement& placement = table.placement;
  if (placement.kind == mesh::Placement::Kind::kSharded && placement.dim == 1) {
    return table.rows * row_bytes((table.width + num_ranks - 1) / num_ranks);
  }
  return most_rows(table, num_ranks) * row_bytes(table.width);
}

}  // namespace

int64_t TableList::width() const {
  int64_t sum = 0;
  for (const parallel::TableConfig& table : tables) sum += table.width;
  return sum;
}

bool RecommendProblem::is_open(int64_t column) const {
  const std::string& open = config.tables.open;
  if (open == kAllFeatures) return true;
  const std::vector<std::string> names = split_list(open, ',');
  return std::ranges::find(names, schema.tables[static_cast<size_t>(column)].name) != names.end();
}

void check_open_tables(const RecommendProblem& problem, const std::string& source) {
  const TablesConfig& tables = problem.config.tables;
  std::vector<std::string> known;
  for (size_t column = 0; column < problem.schema.tables.size(); ++column) {
    const dataset::FeatureTable& feature = problem.schema.tables[column];
    known.push_back(feature.name);
    const bool is_open = problem.is_open(static_cast<int64_t>(column));
    TRIREME_CHECK(is_open || !feature.is_hashed, source, " has hashed ids for \"",
                  shown(feature.name),
                  "\", but tables.open does not name it; set tables.open to \"", kAllFeatures,
                  "\", or prepare the data with --ids rows");
  }
  if (tables.open != kAllFeatures) {
    for (const std::string& name : split_list(tables.open, ',')) {
      TRIREME_CHECK(std::ranges::find(known, name) != known.end(), "tables.open names \"",
                    shown(name), "\", which ", source, " does not have; expected ", kAllFeatures,
                    " or some of ", shown(in_words(known)));
    }
  }
}

std::vector<int64_t> columns_of(const dataset::FeatureSchema& schema, dataset::TableSide side) {
  std::vector<int64_t> columns;
  for (size_t i = 0; i < schema.tables.size(); ++i) {
    if (schema.tables[i].side == side) columns.push_back(static_cast<int64_t>(i));
  }
  return columns;
}

void limit_memory(const RecommendProblem& problem, int num_ranks, int64_t bytes_per_number,
                  const std::string& folder, TableList& list) {
  int64_t left = problem.config.tables.memory;
  if (left == 0) return;
  std::vector<std::pair<int64_t, size_t>> parts;  // (bytes of a rank's part, table)
  for (size_t t = 0; t < list.tables.size(); ++t) {
    const parallel::TableConfig& table = list.tables[t];
    parts.emplace_back(
        most_bytes(table, problem.config.tables.optimizer, num_ranks, bytes_per_number), t);
  }
  std::ranges::sort(parts);
  // With whole tables, a rank has one of every num_ranks tables.
  if (problem.config.tables.placement == TablePlacement::kWhole) left *= num_ranks;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [bytes, t] = parts[i];
    const int64_t limit = std::min(bytes, left / static_cast<int64_t>(parts.size() - i));
    left -= limit;
    if (limit == bytes) continue;
    list.tables[t].memory_bytes = std::max<int64_t>(1, limit);
    list.tables[t].folder = folder;
  }
}

TableList tables_of(const RecommendProblem& problem, int num_ranks) {
  using Side = dataset::TableSide;
  ListMaker maker(problem, num_ranks);
  const int64_t D = problem.config.model.width;
  for (const Side side : {Side::kQuery, Side::kItem}) {
    for (const int64_t column : columns_of(problem.schema, side)) {
      maker.add("embedding", column, D);
    }
  }
  if (problem.config.model.family != RecommendFamily::kWideDeep) return maker.take();
  for (size_t column = 0; column < problem.schema.tables.size(); ++column) {
    maker.add("wide", static_cast<int64_t>(column), problem.num_outputs());
  }
  return maker.take();
}

parallel::JaggedIds ids_of_columns(const at::Tensor& ids_BK, const at::Tensor& lengths_BC,
                                   std::span<const int64_t> columns) {
  const int64_t B = ids_BK.size(0), K = ids_BK.size(1), C = lengths_BC.size(1);
  const at::Tensor ids = ids_BK.contiguous(), lengths = lengths_BC.contiguous();
  const auto* const id = ids.const_data_ptr<int64_t>();
  const auto* const length = lengths.const_data_ptr<int64_t>();
  std::vector<int64_t> begins(static_cast<size_t>(B * C));  // within `id`
  int64_t total = 0;
  for (int64_t b = 0; b < B; ++b) {
    int64_t at = b * K;
    for (int64_t c = 0; c < C; ++c) {
      const int64_t count = length[b * C + c];
      begins[static_cast<size_t>(b * C + c)] = at;
      TRIREME_CHECK(count >= 0 && count <= (b + 1) * K - at, "sample ", b,
                    " of a batch has more ids than its ", K, " places");
      at += count;
    }
    for (const int64_t c : columns) total += length[b * C + c];
  }
  const auto num_lists = std::ssize(columns) * B;
  const at::Tensor values = at::empty({total}, at::kLong);
  const at::Tensor offsets = at::empty({num_lists + 1}, at::kLong);
  auto* const first_value = values.mutable_data_ptr<int64_t>();
  auto* value = first_value;
  auto* offset = offsets.mutable_data_ptr<int64_t>();
  for (const int64_t c : columns) {
    for (int64_t b = 0; b < B; ++b) {
      *offset++ = value - first_value;
      value = std::copy_n(id + begins[static_cast<size_t>(b * C + c)], length[b * C + c], value);
    }
  }
  *offset = value - first_value;
  return {.values = values, .offsets = offsets, .num_samples = B};
}

}  // namespace trireme::tasks
