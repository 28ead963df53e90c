#include "trireme/parallel/embedding/embedding_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace harness;

EmbeddingTable make_table(TableConfig config, int world, int rank, uint64_t seed = 1,
                          RowRule rule = RowRule::kRowWiseAdaGrad) {
  return EmbeddingTable(config, {"data", world}, rank, at::kFloat, seed, {.rule = rule});
}

TEST(EmbeddingTable, InitialValuesDependOnTheElementAlone) {
  const TableConfig config{.name = "t", .rows = 10, .width = 6};
  const at::Tensor whole = make_table(config, 1, 0).weights();
  for (const auto& placement :
       {mesh::Placement::sharded(0), mesh::Placement::sharded(1), whole_on(2, 10, 3)}) {
    TableConfig split = config;
    split.placement = placement;
    for (int rank = 0; rank < 3; ++rank) {
      const EmbeddingTable table = make_table(split, 3, rank, 1, RowRule::kSgd);
      const mesh::Box box = table.layout().local_box(rank);
      assert_same_bits(table.weights(),
                       whole.narrow(0, box.offset[0], box.size[0])
                           .narrow(1, box.offset[1], box.size[1])
                           .contiguous(),
                       "part");
    }
  }
  EXPECT_FALSE(make_table(config, 1, 0, 2).weights().equal(whole));
  TableConfig other = config;
  other.name = "u";
  EXPECT_FALSE(make_table(other, 1, 0).weights().equal(whole));
}

TEST(EmbeddingTable, InitialValuesAreWithinTheScale) {
  TableConfig config{.name = "t", .rows = 400, .width = 30};
  EXPECT_LE(make_table(config, 1, 0).weights().abs().max().item<float>(), 0.05f);
  EXPECT_GT(make_table(config, 1, 0).weights().abs().max().item<float>(), 0.049f);
  config.initial_scale = 3;
  const at::Tensor w = make_table(config, 1, 0).weights();
  EXPECT_GT(w.max().item<float>(), 2.9f);
  EXPECT_LT(w.min().item<float>(), -2.9f);
}

TEST(EmbeddingTable, StateHasANameAndALayoutForEachTensor) {
  const TableConfig config{
      .name = "t", .rows = 7, .width = 2, .placement = mesh::Placement::sharded(0, {0, 2, 7})};
  const std::vector<TableTensor> state = make_table(config, 2, 1).state();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0].name, "t.weight");
  EXPECT_EQ(state[0].local.sizes(), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(state[1].name, "sum.t.weight");
  EXPECT_EQ(state[1].local.sizes(), (std::vector<int64_t>{5}));
  EXPECT_EQ(state[1].layout.local_box(1), (mesh::Box{{2}, {5}}));
  EXPECT_EQ(state[1].rank, 1);
}

// Also a rank without columns, so that all ranks have replicas to save and to load.
TEST(EmbeddingTable, KeepsTheStateOfWholeRowsOnEachRankWithColumns) {
  const TableConfig config{
      .name = "t", .rows = 7, .width = 2, .placement = mesh::Placement::sharded(1)};
  for (int rank = 0; rank < 3; ++rank) {
    EmbeddingTable table = make_table(config, 3, rank);
    EXPECT_TRUE(table.needs_mean_squares());
    const std::vector<TableTensor> state = table.state();
    EXPECT_EQ(state[0].local.sizes(), (std::vector<int64_t>{7, rank < 2 ? 1 : 0}));
    EXPECT_EQ(state[1].local.sizes(), (std::vector<int64_t>{7}));
    EXPECT_EQ(state[1].layout.placements()[0], mesh::Placement::replicated());
  }
  EXPECT_FALSE(make_table(config, 2, 0, 1, RowRule::kAdaGrad).needs_mean_squares());
}

TEST(EmbeddingTable, RefusesOtherDtypes) {
  EXPECT_THROW(
      EmbeddingTable({.name = "t", .rows = 7, .width = 2}, {"data", 1}, 0, at::kHalf, 1, {}),
      ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
