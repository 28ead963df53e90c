// The report of `trireme plan` on a recommendation model: its tables, their best placement, and
// each rank's share.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trireme/plan/device/cluster.h"
#include "trireme/plan/tables/table_search.h"
#include "trireme/tasks/recommend/automatic_tables.h"

namespace trireme::cli {

// Each device of the cluster is a rank.
// dense_bytes: that a rank holds besides its tables
// table_gib: what it has for tables; 0: what the device and the dense layers leave
plan::TableSearch table_search(const plan::Cluster& cluster, double dense_bytes, double table_gib);

struct PlacedTables {
  tasks::MeasuredTables tables{};
  plan::TableSearch search{};
  plan::TablePlan planned{};
  // Placements without a planner, which may exceed the memory.
  plan::TablePlan by_rows{};
  plan::TablePlan in_turn{};
  double least_seconds = 0;  // at any placement
};
// Throws: ConfigError when the tables do not fit
PlacedTables place(tasks::MeasuredTables tables, const plan::TableSearch& search);

nlohmann::json to_json(const PlacedTables& placed);
// Lines for people.
std::string show(const PlacedTables& placed);

}  // namespace trireme::cli
