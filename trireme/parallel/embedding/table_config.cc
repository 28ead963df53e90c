#include "trireme/parallel/embedding/table_config.h"

#include <cmath>
#include <limits>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::parallel {

mesh::Placement whole_on(int rank, int64_t rows, int num_ranks) {
  return rows_on(rank, 1, rows, num_ranks);
}

mesh::Placement rows_on(int first, int count, int64_t rows, int num_ranks) {
  TRIREME_CHECK(first >= 0 && count >= 1 && count <= num_ranks - first, "rows on ", count,
                " ranks from rank ", first, " on; the axis has ranks 0 to ", num_ranks - 1);
  std::vector<int64_t> cuts;
  for (int rank = 0; rank <= num_ranks; ++rank) {
    const int index = rank - first;
    // A table on some ranks is a split with empty parts elsewhere.
    cuts.push_back(index < 0       ? 0
                   : index < count ? mesh::split_range(rows, count, index).offset
                                   : rows);
  }
  return mesh::Placement::sharded(0, cuts);
}

mesh::Layout layout_of(const TableConfig& table, const mesh::Axis& axis) {
  return mesh::Layout({table.rows, table.width}, {axis}, {table.placement});
}

namespace {

void check_open(const TableConfig& table, const std::string& name) {
  if (!table.is_open) {
    TRIREME_CHECK(
        table.open_max_rows == 0 && table.open_expire_steps == 0 && table.open_min_uses == 1 &&
            table.open_when_full == FullTable::kEvict && table.open_halve_steps == kOpenHalveSteps,
        name, " limits an open vocabulary but is not open; set is_open or leave the limits out");
    return;
  }
  TRIREME_CHECK(table.rows == kOpenRows, name, " is open and has ", table.rows, " rows; expected ",
                kOpenRows, " (kOpenRows)");
  TRIREME_CHECK(table.placement.kind != mesh::Placement::Kind::kSharded || table.placement.dim == 0,
                name, " is open and split by columns; split it by rows or replicate it");
  TRIREME_CHECK(table.open_halve_steps >= 0, name, " halves its uses after ",
                table.open_halve_steps, " steps; expected 0 (never) or more");
  TRIREME_CHECK(
      table.open_max_rows >= 0 && table.open_expire_steps >= 0 && table.open_min_uses >= 1, name,
      " is open with at most ", table.open_max_rows, " rows, ", table.open_expire_steps,
      " steps and ", table.open_min_uses, " uses; expected 0 or more, 0 or more, and 1 or more");
}

}  // namespace

void check_tables(std::span<const TableConfig> tables) {
  TRIREME_CHECK(!tables.empty(), "there is no embedding table; give at least one");
  std::set<std::string> names;
  for (const TableConfig& table : tables) {
    TRIREME_CHECK(!table.name.empty(), "an embedding table has no name; name each");
    const std::string name = "embedding table \"" + shown(table.name) + "\"";
    TRIREME_CHECK(names.insert(table.name).second, name, " exists twice; rename one");
    TRIREME_CHECK(table.rows >= 1 && table.width >= 1, name, " has ", table.rows,
                  " rows and width ", table.width, "; both must be at least 1");
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;  // bytes of fp64
    TRIREME_CHECK(table.rows <= kMost / table.width, name, " has ", table.rows, " rows and width ",
                  table.width, "; their product must be at most ", kMost);
    TRIREME_CHECK(!table.is_weighted || table.pooling == Pooling::kSum, name,
                  " has weights and pooling \"", name_of(kPoolings, table.pooling),
                  "\"; weights need pooling \"sum\"");
    TRIREME_CHECK(table.placement.kind != mesh::Placement::Kind::kPartial, name,
                  " is placed as partial sums; expected replicated or sharded");
    TRIREME_CHECK(table.memory_bytes >= 0, name, " may take ", table.memory_bytes,
                  " bytes of memory; expected 0 (all that it needs) or more");
    TRIREME_CHECK(table.memory_bytes == 0 || !table.folder.empty(), name,
                  " has a memory limit and no folder for its other rows; give one");
    TRIREME_CHECK(std::isfinite(table.initial_scale) && table.initial_scale >= 0, name,
                  " has the initial scale ", table.initial_scale, "; expected 0 or more");
    check_open(table, name);
  }
}

}  // namespace trireme::parallel
