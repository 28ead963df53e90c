#include "trireme/tasks/recommend/tables/table_choice.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {
namespace {

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
  std::ostringstream line;
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

}  // namespace trireme::tasks::inline internal
