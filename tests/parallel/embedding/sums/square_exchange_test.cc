#include "trireme/parallel/embedding/sums/square_tree.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/draw.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"

namespace trireme::parallel {
namespace {

using namespace harness;

struct Table {
  at::Tensor rows;  // whole
  std::vector<mesh::Range> columns;
  int receiver;
};

Table draw_table(Draw& draw, int world, at::ScalarType dtype) {
  const int64_t n = draw.below<int64_t>(5), width = 1 + draw.below<int64_t>(70);
  Table table{.rows = at::arange(n * width, at::kDouble).sin().to(dtype).view({n, width}),
              .columns = {},
              .receiver = draw.below(2) == 0 ? kEachRank : draw.below(world)};
  const std::vector<int64_t> cuts = draw_cuts(draw, width, world);
  for (size_t r = 0; r + 1 < cuts.size(); ++r) {
    table.columns.push_back({cuts[r], cuts[r + 1] - cuts[r]});
  }
  return table;
}

// What `from` sends to `to`, given that it has its columns of the rows.
int64_t bytes_to(const std::vector<Table>& tables, size_t from, size_t to, at::ScalarType dtype) {
  int64_t count = 0;
  for (const Table& table : tables) {
    if (table.receiver != kEachRank && table.receiver != static_cast<int>(to)) continue;
    count += table.rows.size(0) * num_square_sums(table.columns[from]);
  }
  return count * static_cast<int64_t>(c10::elementSize(dtype));
}

TEST(SquareExchange, HasTheBitsOfWholeRowsAndSendsTheBytesItStates) {
  Draw draw(4);
  for (const int world : {1, 2, 3, 4}) {
    for (int round = 0; round < 15; ++round) {
      const at::ScalarType from = round % 2 == 0 ? at::kFloat : at::kDouble;
      const at::ScalarType to = round % 3 == 0 ? at::kDouble : from;
      std::vector<Table> tables;
      for (int t = draw.below(4); t > 0; --t) tables.push_back(draw_table(draw, world, from));
      run_ranks(world, [&](comm::Communicator& group) {
        CountingCommunicator counting(group);
        const auto self = static_cast<size_t>(group.rank());
        std::vector<SplitRows> split;
        for (const Table& table : tables) {
          const auto [first, width] = table.columns[self];
          // A rank that has nothing to do with the rows does not know how many they are.
          const bool knows =
              width > 0 || table.receiver == kEachRank || table.receiver == static_cast<int>(self);
          const at::Tensor part = table.rows.narrow(1, first, width).contiguous();
          split.push_back({knows ? part : part.narrow(0, 0, 0), table.columns, table.receiver});
        }
        const std::vector<at::Tensor> found =
            gather_squares(split, &counting, {.dtype = to, .symmetric = round % 2 == 0});
        ASSERT_EQ(found.size(), tables.size());
        for (size_t t = 0; t < tables.size(); ++t) {
          const Table& table = tables[t];
          const bool receives =
              table.receiver == kEachRank || table.receiver == static_cast<int>(self);
          ASSERT_EQ(found[t].defined(), receives);
          if (!receives) continue;
          const int64_t whole[] = {0};
          assert_same_bits(found[t], squares_of(table.rows, {0, table.rows.size(1)}, whole, to)[0],
                           "sums");
        }
        int64_t expected = 0;
        for (size_t r = 0; r < static_cast<size_t>(world); ++r) {
          if (r != self) expected += bytes_to(tables, self, r, to);
        }
        EXPECT_EQ(counting.sent_by_all_to_all(), expected);
        EXPECT_EQ(counting.ledger().of(group.name()).calls, world == 1 ? 0 : 1);
      });
    }
  }
}

TEST(SquareExchange, SendsOneNumberForAnAlignedPowerOfTwo) {
  EXPECT_EQ(num_square_sums({0, 64}), 1);
  EXPECT_EQ(num_square_sums({96, 32}), 1);
  EXPECT_EQ(num_square_sums({43, 43}), 6);  // 43, 44-47, 48-63, 64-79, 80-83, 84-85
  EXPECT_EQ(num_square_sums({5, 0}), 0);
}

}  // namespace
}  // namespace trireme::parallel
