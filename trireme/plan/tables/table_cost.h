// The cost of an embedding table for each rank at a placement: memory, rows read and updated, and
// bytes on the wire, by the formulas of docs/guide/embedding-tables.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/plan/device/cluster.h"
#include "trireme/plan/tables/table_statistics.h"

namespace trireme::plan {

struct TableLoad {
  std::string name{};
  int64_t rows = 0;
  // For an open vocabulary: the number of rows, spread evenly over its `rows` parts. 0: all.
  double rows_in_use = 0;
  int64_t width = 0;
  double number_bytes = 4;       // of a number of a row, stored or in transit
  double states_per_number = 0;  // numbers that the optimizer keeps for each number
  double bytes_per_row = 0;      // what it keeps for a whole row
  bool may_split_columns = true;
  // Split by columns, updates need the sum of squares of each whole row.
  bool sums_squares = false;
  // One entry per rank, or a single one if all ranks use the table alike.
  std::vector<RowUse> use{};

  double row_bytes(int64_t part_width) const {
    return static_cast<double>(part_width) * number_bytes * (1 + states_per_number) + bytes_per_row;
  }
  double num_rows() const { return rows_in_use > 0 ? rows_in_use : static_cast<double>(rows); }
  // Bytes of one of the `rows` parts, with all its rows.
  double part_bytes(int64_t part_width) const {
    return row_bytes(part_width) * (num_rows() / static_cast<double>(rows));
  }
  double bytes() const { return num_rows() * row_bytes(width); }
  const RowUse& use_of(int rank) const {
    return use[use.size() == 1 ? 0 : static_cast<size_t>(rank)];
  }
};

enum class TableSplit { kReplicated, kWhole, kRows, kColumns };
inline constexpr Choice<TableSplit> kTableSplits[] = {{"replicated", TableSplit::kReplicated},
                                                      {"whole", TableSplit::kWhole},
                                                      {"rows", TableSplit::kRows},
                                                      {"columns", TableSplit::kColumns}};

struct TablePlace {
  TableSplit split = TableSplit::kRows;
  int rank = 0;                 // kWhole: that has the table
  std::vector<int64_t> cuts{};  // kRows: rank r has the rows [cuts[r], cuts[r + 1]); empty: evenly
  bool operator==(const TablePlace&) const = default;
};

// Part r of `count` when [0, length) is split as evenly as possible, longer parts first.
int64_t even_cut(int64_t length, int count, int r);

struct TableRanks {
  int num_ranks = 1;
  int ranks_per_node = 1;  // neighbours in number
};

// Per step of training.
struct RankCost {
  double memory_bytes = 0;     // of tables and optimizer states
  double rows_read = 0;        // for the look-ups of all ranks
  double gradients_added = 0;  // of rows, from all ranks
  double rows_updated = 0;
  double touched_bytes = 0;  // of memory, by these three
  double parts = 0;          // tables that it has a part of
  // Bytes to and from ranks of the same node (near) and of other nodes (far).
  double sent_near = 0, sent_far = 0;
  double received_near = 0, received_far = 0;

  RankCost& operator+=(const RankCost& other) { return add(other, 1); }
  RankCost& operator-=(const RankCost& other) { return add(other, -1); }
  double look_ups() const { return rows_read + gradients_added; }
  double sent() const { return sent_near + sent_far; }
  double received() const { return received_near + received_far; }

 private:
  RankCost& add(const RankCost& other, double factor);
};

struct TableRates {
  double near_bytes = 1;    // per second, that a rank sends within its node
  double far_bytes = 1;     // to other nodes
  double memory_bytes = 1;  // that it reads or writes
  double part_seconds = 0;  // for each table that it has a part of

  // The part of the time that depends on the placement; pooling is extra.
  double seconds(const RankCost& cost) const;
};
TableRates rates_of(const Cluster& cluster);

// Adds the table's cost at `place` to each rank's.
// costs: [ranks.num_ranks]
void add_cost(const TableLoad& table, const TablePlace& place, const TableRanks& ranks,
              std::span<RankCost> costs);
// Adds the message that says how many ids follow: 8 (tables + 1) bytes to each other rank.
void add_headers(size_t num_tables, const TableRanks& ranks, std::span<RankCost> costs);

// A rank's part of a table.
struct TablePart {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t width = 0;
  int64_t first_column = 0;
};
TablePart part_of(const TableLoad& table, const TablePlace& place, int num_ranks, int rank);

}  // namespace trireme::plan
