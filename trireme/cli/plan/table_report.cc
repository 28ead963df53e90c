#include "trireme/cli/plan/table_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {
namespace {

constexpr size_t kMostTables = 40;  // that are shown, the largest
constexpr size_t kMostRanks = 16;   // the busiest

// The places of the largest values, in the order of the list.
template <typename Value>
std::vector<size_t> largest(size_t count, size_t most, const Value& value) {
  std::vector<size_t> places(count);
  std::iota(places.begin(), places.end(), size_t{0});
  std::ranges::stable_sort(places, [&](size_t a, size_t b) { return value(a) > value(b); });
  places.resize(std::min(count, most));
  std::ranges::sort(places);
  return places;
}

// "whole on rank 3", "rows, 10 to 31 %".
std::string describe(const plan::TablePlace& place, int64_t rows) {
  using plan::TableSplit;
  if (place.split == TableSplit::kWhole) return concat("whole on rank ", place.rank);
  if (place.split != TableSplit::kRows || place.cuts.empty()) {
    return name_of(plan::kTableSplits, place.split);
  }
  int64_t least = rows, most = 0;
  for (size_t r = 0; r + 1 < place.cuts.size(); ++r) {
    least = std::min(least, place.cuts[r + 1] - place.cuts[r]);
    most = std::max(most, place.cuts[r + 1] - place.cuts[r]);
  }
  if (most - least <= 1) return "rows";
  const double percent = 100 / static_cast<double>(rows);
  return format("rows, %.3g to %.3g %%", percent * static_cast<double>(least),
                percent * static_cast<double>(most));
}

std::string shown_time(double seconds) {
  return seconds >= 0.1    ? format("%.2f s", seconds)
         : seconds >= 1e-4 ? format("%.2f ms", 1e3 * seconds)
                           : format("%.2f us", 1e6 * seconds);
}

struct Spread {
  double memory = 1, look_ups = 1, sent = 1, seconds = 1;
};
Spread spread_of(const plan::TablePlan& plan, const plan::TableRates& rates) {
  const std::span<const plan::RankCost> costs = plan.costs;
  using plan::RankCost;
  return {plan::imbalance(costs, [](const RankCost& cost) { return cost.memory_bytes; }),
          plan::imbalance(costs, [](const RankCost& cost) { return cost.look_ups(); }),
          plan::imbalance(costs, [](const RankCost& cost) { return cost.sent(); }),
          plan::imbalance(costs, [&](const RankCost& cost) { return rates.seconds(cost); })};
}

nlohmann::json to_json(const plan::TablePlan& plan, const plan::TableSearch& search) {
  const Spread spread = spread_of(plan, search.rates);
  return {{"seconds", plan.seconds},
          {"fits", plan::fits(plan, search)},
          {"imbalance",
           {{"memory", spread.memory},
            {"look_ups", spread.look_ups},
            {"sent_bytes", spread.sent},
            {"seconds", spread.seconds}}}};
}

nlohmann::json to_json(const plan::RankCost& cost, const plan::TableRates& rates) {
  return {{"memory_bytes", cost.memory_bytes}, {"look_ups", cost.look_ups()},
          {"rows_read", cost.rows_read},       {"gradients_added", cost.gradients_added},
          {"rows_updated", cost.rows_updated}, {"sent_bytes", cost.sent()},
          {"received_bytes", cost.received()}, {"seconds", rates.seconds(cost)}};
}

void show_tables(TextWriter& out, const PlacedTables& placed) {
  const auto& loads = placed.tables.loads;
  double rows = 0, bytes = 0;
  size_t width = 5;
  for (const plan::TableLoad& load : loads) {
    rows += load.num_rows();
    bytes += load.bytes();
    width = std::min<size_t>(40, std::max(width, load.name.size()));
  }
  out << "tables   " << loads.size() << " with " << human_count(rows) << " rows, "
      << human_bytes(bytes) << " with optimizer states\n";
  const int columns = static_cast<int>(width);
  out << format("  %-*s %10s %10s %10s %5s %11s %12s  %s\n", columns, "table", "rows", "memory",
                "ids/sample", "Zipf", "hottest 1 %", "rows/rank", "placement");
  const auto shown = largest(loads.size(), kMostTables, [&](size_t t) { return loads[t].bytes(); });
  for (const size_t t : shown) {
    const plan::TableStatistics& found = placed.tables.statistics[t];
    out << format("  %-*s %10s %10s %10.3g %5.2f %9.1f %% %12s  ", columns,
                  printable(loads[t].name).substr(0, width).c_str(),
                  human_count(loads[t].num_rows()).c_str(), human_bytes(loads[t].bytes()).c_str(),
                  found.ids_per_sample, found.exponent, 100 * found.hot_share,
                  human_count(found.use.all().distinct).c_str())
        << describe(placed.planned.places[t], loads[t].rows) << "\n";
  }
  if (shown.size() < loads.size()) {
    out << "  and " << loads.size() - shown.size() << " smaller ones; --json lists all\n";
  }
}

void show_ranks(TextWriter& out, const PlacedTables& placed) {
  const plan::TableRates& rates = placed.search.rates;
  const auto& costs = placed.planned.costs;
  out << "ranks    " << costs.size() << " with " << human_bytes(placed.search.memory_bytes)
      << " each for tables; a step of one:\n"
      << format("  %4s %10s %10s %10s %10s %10s\n", "rank", "memory", "look-ups", "sent",
                "received", "time");
  const auto shown =
      largest(costs.size(), kMostRanks, [&](size_t r) { return rates.seconds(costs[r]); });
  for (const size_t r : shown) {
    const plan::RankCost& cost = costs[r];
    out << format("  %4zu %10s %10s %10s %10s %10s\n", r, human_bytes(cost.memory_bytes).c_str(),
                  human_count(cost.look_ups()).c_str(), human_bytes(cost.sent()).c_str(),
                  human_bytes(cost.received()).c_str(), shown_time(rates.seconds(cost)).c_str());
  }
  if (shown.size() < costs.size()) {
    out << "  and " << costs.size() - shown.size() << " less busy ones; --json lists all\n";
  }
}

void show_plan(TextWriter& out, const char* name, const plan::TablePlan& plan,
               const plan::TableSearch& search) {
  const Spread spread = spread_of(plan, search.rates);
  out << format("  %-14s %8.2f %10.2f %8.2f %8.2f %16s", name, spread.memory, spread.look_ups,
                spread.sent, spread.seconds, shown_time(plan.seconds).c_str());
  if (!plan::fits(plan, search)) {
    double largest = 0;
    for (const plan::RankCost& cost : plan.costs) largest = std::max(largest, cost.memory_bytes);
    out << "; does not fit, by " << human_bytes(largest - search.memory_bytes);
  }
  out << "\n";
}

}  // namespace

plan::TableSearch table_search(const plan::Cluster& cluster, double dense_bytes, double table_gib) {
  const plan::Device& device = cluster.device;
  const double left =
      device.memory_bytes * (1 - device.fragmentation) - device.reserved_bytes - dense_bytes;
  return {.ranks = {.num_ranks = static_cast<int>(cluster.num_devices()),
                    .ranks_per_node = static_cast<int>(cluster.devices_per_node)},
          .rates = plan::rates_of(cluster),
          .memory_bytes = table_gib > 0 ? std::ldexp(table_gib, 30) : left};
}

PlacedTables place(tasks::MeasuredTables tables, const plan::TableSearch& search) {
  const size_t count = tables.loads.size();
  PlacedTables placed{.tables = std::move(tables), .search = search};
  const std::vector<plan::TableLoad>& loads = placed.tables.loads;
  placed.planned = plan::place_tables(loads, search);
  placed.by_rows = plan::plan_of(loads, plan::all_by_rows(count), search);
  placed.in_turn = plan::plan_of(loads, plan::whole_in_turn(count, search.ranks.num_ranks), search);
  placed.least_seconds = plan::least_seconds(loads, search);
  return placed;
}

nlohmann::json to_json(const PlacedTables& placed) {
  nlohmann::json all{{"planned", to_json(placed.planned, placed.search)},
                     {"all_by_rows", to_json(placed.by_rows, placed.search)},
                     {"whole_in_turn", to_json(placed.in_turn, placed.search)},
                     {"least_seconds", placed.least_seconds},
                     {"table_memory_bytes", placed.search.memory_bytes}};
  for (size_t t = 0; t < placed.tables.loads.size(); ++t) {
    const plan::TableLoad& load = placed.tables.loads[t];
    const plan::TableStatistics& found = placed.tables.statistics[t];
    const plan::TablePlace& place = placed.planned.places[t];
    nlohmann::json table{{"name", load.name},
                         {"rows", std::llround(load.num_rows())},
                         {"open", load.rows_in_use > 0},
                         {"width", load.width},
                         {"memory_bytes", load.bytes()},
                         {"ids_per_sample", found.ids_per_sample},
                         {"zipf_exponent", found.exponent},
                         {"hottest_share", found.hot_share},
                         {"rows_per_rank", found.use.all().distinct},
                         {"rows_per_step", found.use.all().updated},
                         {"split", name_of(plan::kTableSplits, place.split)}};
    if (place.split == plan::TableSplit::kWhole) table["rank"] = place.rank;
    if (!place.cuts.empty()) table["cuts"] = place.cuts;
    all["tables"].push_back(std::move(table));
  }
  for (const plan::RankCost& cost : placed.planned.costs) {
    all["ranks"].push_back(to_json(cost, placed.search.rates));
  }
  return all;
}

std::string show(const PlacedTables& placed) {
  TextWriter out;
  show_tables(out, placed);
  show_ranks(out, placed);
  out << "busiest rank over the mean\n"
      << format("  %-14s %8s %10s %8s %8s %16s\n", "", "memory", "look-ups", "sent", "time",
                "busiest's time");
  show_plan(out, "planned", placed.planned, placed.search);
  show_plan(out, "all by rows", placed.by_rows, placed.search);
  show_plan(out, "whole in turn", placed.in_turn, placed.search);
  out << "  at any placement the busiest rank needs at least " << shown_time(placed.least_seconds)
      << "\n";
  return out.str();
}

}  // namespace trireme::cli
