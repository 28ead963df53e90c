#include "trireme/tasks/recommend/tables/planned_tables.h"

#include <algorithm>
#include <iomanip>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <ATen/core/Tensor.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/parallel/embedding/open/open_key.h"
#include "trireme/parallel/embedding/sums/sample_tree.h"

namespace trireme::tasks {
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

constexpr const char* kFormat = "trireme-table-placements";
constexpr int64_t kVersion = 1;

nlohmann::json to_json(const plan::TablePlace& place) {
  nlohmann::json json{{"split", name_of(plan::kTableSplits, place.split)}};
  if (place.split == plan::TableSplit::kWhole) json["rank"] = place.rank;
  if (!place.cuts.empty()) json["cuts"] = place.cuts;
  return json;
}

void check_cuts(const JsonView& view, const std::vector<int64_t>& cuts, int64_t rows,
                int num_ranks) {
  const bool fits = std::ssize(cuts) == num_ranks + 1 && cuts.front() == 0 && cuts.back() == rows &&
                    std::ranges::is_sorted(cuts);
  if (!fits) {
    view.fail(concat(num_ranks + 1, " numbers that rise from 0 to the table's ", rows, " rows"));
  }
}

plan::TablePlace parse_place(const JsonView& view, const parallel::TableConfig& table,
                             int num_ranks) {
  if (view.at("name").word() != table.name) view.at("name").fail(in_quotes(table.name));
  if (view.at("rows").integer(1) != table.rows) view.at("rows").fail(std::to_string(table.rows));
  plan::TablePlace place;
  const auto* const split = find_choice(plan::kTableSplits, view.at("split").word());
  if (split == nullptr) view.at("split").fail(in_words(names_of(plan::kTableSplits)));
  place.split = split->value;
  if (place.split == plan::TableSplit::kWhole) {
    place.rank = static_cast<int>(view.at("rank").integer(0, num_ranks - 1));
  }
  if (const auto cuts = view.find("cuts"); cuts && place.split == plan::TableSplit::kRows) {
    place.cuts = cuts->integers(0);
    check_cuts(*cuts, place.cuts, table.rows, num_ranks);
  }
  return place;
}

// The largest over the mean.
template <typename Value>
double spread(std::span<const RankLookUps> ranks, const Value& value) {
  double largest = 0, sum = 0;
  for (const RankLookUps& rank : ranks) {
    largest = std::max(largest, value(rank));
    sum += value(rank);
  }
  return sum > 0 ? largest * static_cast<double>(ranks.size()) / sum : 1;
}

template <typename Value>
double mean(std::span<const RankLookUps> ranks, const Value& value) {
  double sum = 0;
  for (const RankLookUps& rank : ranks) sum += value(rank);
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

double look_ups(const RankLookUps& rank) { return rank.look_ups; }
double sent(const RankLookUps& rank) { return rank.sent_bytes; }

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

TableChoice choice_of(const plan::TablePlan& plan) {
  TableChoice choice{.places = plan.places};
  for (const plan::RankCost& cost : plan.costs) {
    choice.predicted.push_back({.look_ups = cost.look_ups(), .sent_bytes = cost.sent()});
  }
  return choice;
}

std::string to_json(const TableChoice& choice, std::span<const parallel::TableConfig> tables) {
  nlohmann::json json{{"format", kFormat}, {"version", kVersion}};
  for (size_t t = 0; t < tables.size(); ++t) {
    nlohmann::json table = to_json(choice.places[t]);
    table["name"] = tables[t].name;
    table["rows"] = tables[t].rows;
    json["tables"].push_back(std::move(table));
  }
  for (const RankLookUps& rank : choice.predicted) {
    json["ranks"].push_back({{"look_ups", rank.look_ups}, {"sent_bytes", rank.sent_bytes}});
  }
  return json.dump(/*indent=*/1) + "\n";
}

TableChoice parse_choice(const std::string& text, const std::string& source,
                         std::span<const parallel::TableConfig> tables, int num_ranks) {
  const nlohmann::json json = parse_json(text, source, {.max_depth = 4});
  const JsonView root(json, source);
  if (root.at("format").word() != kFormat) root.at("format").fail(in_quotes(kFormat));
  root.at("version").integer(kVersion, kVersion);
  const std::vector<JsonView> ranks = root.at("ranks").elements();
  if (std::ssize(ranks) != num_ranks) root.at("ranks").fail(concat(num_ranks, " ranks"));
  const std::vector<JsonView> places = root.at("tables").elements();
  if (places.size() != tables.size()) root.at("tables").fail(concat(tables.size(), " tables"));
  TableChoice choice;
  for (size_t t = 0; t < tables.size(); ++t) {
    choice.places.push_back(parse_place(places[t], tables[t], num_ranks));
  }
  for (const JsonView& rank : ranks) {
    choice.predicted.push_back(
        {.look_ups = rank.at("look_ups").number(0), .sent_bytes = rank.at("sent_bytes").number(0)});
  }
  return choice;
}

std::string describe(std::span<const plan::TablePlace> places) {
  using plan::TableSplit;
  constexpr std::pair<TableSplit, const char*> kWords[] = {{TableSplit::kRows, "by rows"},
                                                           {TableSplit::kColumns, "by columns"},
                                                           {TableSplit::kWhole, "whole"},
                                                           {TableSplit::kReplicated, "replicated"}};
  std::string text;
  for (const auto& [split, words] : kWords) {
    const auto count = std::ranges::count(places, split, &plan::TablePlace::split);
    if (count > 0) text += concat(text.empty() ? "" : ", ", count, " ", words);
  }
  return concat(places.size(), places.size() == 1 ? " table: " : " tables: ", text);
}

RankLookUps look_ups_of(const parallel::TableCounts& counts) {
  const double steps = std::max(1.0, static_cast<double>(counts.num_steps));
  return {.look_ups = static_cast<double>(counts.rows_read + counts.gradients_added) / steps,
          .sent_bytes = static_cast<double>(counts.sent_bytes) / steps};
}

std::string compare_look_ups(std::span<const RankLookUps> measured,
                             std::span<const RankLookUps> predicted) {
  if (measured.size() < 2 || mean(measured, look_ups) == 0) return "";
  TextWriter line;
  line << std::fixed << std::setprecision(2);
  const auto add = [&](double found, double expected, const char* unit) {
    line << found << unit;
    if (!predicted.empty()) line << " (predicted " << expected << ")";
  };
  line << "tables  busiest rank / mean: look-ups ";
  add(spread(measured, look_ups), spread(predicted, look_ups), "");
  line << ", bytes ";
  add(spread(measured, sent), spread(predicted, sent), "");
  line << "; mean per step: " << std::setprecision(0);
  add(mean(measured, look_ups), mean(predicted, look_ups), " look-ups");
  line << ", ";
  constexpr double kKilo = 1e3;
  add(mean(measured, sent) / kKilo, mean(predicted, sent) / kKilo, " kB");
  return line.str();
}

}  // namespace trireme::tasks
