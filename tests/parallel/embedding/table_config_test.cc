#include "trireme/parallel/embedding/table_config.h"

#include <limits>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using Cuts = std::vector<int64_t>;

TEST(TableConfig, RowsLieOnTheRanksThatArePlacedOn) {
  EXPECT_EQ(whole_on(0, 7, 3).cuts, (Cuts{0, 7, 7, 7}));
  EXPECT_EQ(whole_on(2, 7, 3).cuts, (Cuts{0, 0, 0, 7}));
  EXPECT_EQ(rows_on(1, 2, 7, 4).cuts, (Cuts{0, 0, 4, 7, 7}));
  EXPECT_EQ(rows_on(0, 3, 2, 3).cuts, (Cuts{0, 1, 2, 2}));
  EXPECT_THROW(whole_on(3, 7, 3), ConfigError);
  EXPECT_THROW(whole_on(-1, 7, 3), ConfigError);
  EXPECT_THROW(rows_on(1, 0, 7, 3), ConfigError);
  EXPECT_THROW(rows_on(1, std::numeric_limits<int>::max(), 7, 3), ConfigError);
}

TEST(TableConfig, ALayoutHasTheWholeTable) {
  const TableConfig table{.name = "t", .rows = 7, .width = 3, .placement = whole_on(1, 7, 2)};
  const mesh::Layout layout = layout_of(table, {"data", 2});
  EXPECT_EQ(layout.shape(), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(layout.local_box(0).numel(), 0);
  EXPECT_EQ(layout.local_box(1).numel(), 21);
  EXPECT_THROW(layout_of(table, {"data", 3}), ConfigError);
}

std::string refusal_of_tables(const std::vector<TableConfig>& tables) {
  try {
    check_tables(tables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TableConfig, ErrorsNameTheTable) {
  const TableConfig good{.name = "a", .rows = 1, .width = 1};
  EXPECT_EQ(refusal_of_tables({good}), "");
  EXPECT_EQ(refusal_of_tables({}), "there is no embedding table; give at least one");
  EXPECT_EQ(refusal_of_tables({good, good}), "embedding table \"a\" exists twice; rename one");
  TableConfig bad = good;
  bad.name = "";
  EXPECT_EQ(refusal_of_tables({bad}), "an embedding table has no name; name each");
  bad = good;
  bad.rows = 0;
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" has 0 rows and width 1; both must be at least 1");
  bad.rows = int64_t{1} << 60;
  bad.width = 2;
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" has 1152921504606846976 rows and width 2; their product must be "
            "at most 1152921504606846975");
  bad = good;
  bad.is_weighted = true;
  bad.pooling = Pooling::kMean;
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" has weights and pooling \"mean\"; weights need pooling \"sum\"");
  bad = good;
  bad.placement = mesh::Placement::partial();
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" is placed as partial sums; expected replicated or sharded");
  bad = good;
  bad.initial_scale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" has the initial scale nan; expected 0 or more");
}

TEST(TableConfig, OpenTablesHaveNoNumberOfRows) {
  TableConfig good{.name = "a", .rows = kOpenRows, .width = 3};
  good.is_open = true;
  EXPECT_EQ(refusal_of_tables({good}), "");
  TableConfig bad = good;
  bad.rows = 7;
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" is open and has 7 rows; expected 4294967296 (kOpenRows)");
  bad = good;
  bad.placement = mesh::Placement::sharded(1);
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" is open and split by columns; split it by rows or replicate it");
  bad = good;
  bad.open_halve_steps = -1;
  EXPECT_EQ(refusal_of_tables({bad}),
            "embedding table \"a\" halves its uses after -1 steps; expected 0 (never) or more");
  bad = good;
  bad.open_min_uses = 0;
  EXPECT_NE(refusal_of_tables({bad}).find("0 uses; expected"), std::string::npos);
  bad = good;
  bad.is_open = false;
  bad.open_expire_steps = 3;
  EXPECT_NE(refusal_of_tables({bad}).find("but is not open; set is_open"), std::string::npos);
}

}  // namespace
}  // namespace trireme::parallel
