#include "trireme/spmd/move_log.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

TEST(MoveLog, CountsEachRedistributionWithItsCause) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const auto log = std::make_shared<MoveLog>();
    const auto grid = std::make_shared<Grid>(mesh);
    grid->set_log(log);
    const at::Tensor x = place_whole(grid, values({4, 6}, 0.1), {Place::sharded(1)});
    log->clear();
    placed(x)->parameter = log->keep_name("blocks.0.norm.weight");
    for (int i = 0; i < 3; ++i) x.softmax(1);
    whole_of(x);
    const std::vector<Move> moves = log->moves();
    ASSERT_EQ(moves.size(), 2u);
    const Move& softmax = moves[0].count == 3 ? moves[0] : moves[1];
    EXPECT_EQ(softmax.operation, "aten::_softmax");
    EXPECT_EQ(softmax.module, "blocks.0.norm");
    EXPECT_EQ(softmax.why, "argument 0: sharded(1) -> sharded(0) on tensor");
    EXPECT_EQ(softmax.bytes, 3 * 4 * 6 * 8 / 4.0);  // half of half
    EXPECT_GT(softmax.seconds, 0);
    const Move& whole = moves[0].count == 3 ? moves[1] : moves[0];
    EXPECT_EQ(whole.operation, "whole_of()");
    EXPECT_EQ(whole.bytes, 4 * 6 * 8 / 2.0);
  });
}

TEST(MoveLog, AViewThatCutsAShardIsCalledSo) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const auto log = std::make_shared<MoveLog>();
    const auto grid = std::make_shared<Grid>(mesh);
    grid->set_log(log);
    const at::Tensor x = place_whole(grid, values({6, 5}, 0.1), {Place::sharded(0)});
    log->clear();
    EXPECT_EQ(x.view({3, 10}).size(0), 3);
    ASSERT_EQ(log->moves().size(), 1u);
    EXPECT_EQ(log->moves()[0].why, "argument 0: cuts a shard, sharded(0) -> replicated on tensor");
  });
}

TEST(MoveLog, ATableHas80Columns) {
  const std::string table =
      to_table({{"aten::addmm", "blocks.0.attention.projection.of.a.long.name.down",
                 "argument 1: sharded(0) -> replicated on tensor", 12, 3456789, 0.5},
                {"aten::embedding", "", std::string(100, 'y'), 1, 5e11, 1.25},
                {"aten::mul", "head", "free", 7, 0, 0}});
  std::istringstream lines(table);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    found.push_back(line);
  }
  ASSERT_EQ(found.size(), 7u);
  EXPECT_NE(found[1].find("aten::embedding"), std::string::npos);
  EXPECT_NE(found[3].find("aten::addmm"), std::string::npos);
  EXPECT_NE(found[3].find("...ion.of.a.long.name.down"), std::string::npos) << found[3];
  EXPECT_NE(found[3].find("     12     3456789    0.5000"), std::string::npos) << found[3];
  EXPECT_NE(found[5].find("total"), std::string::npos);
  EXPECT_EQ(found[6], "and 7 that send nothing");
}

}  // namespace
}  // namespace trireme::spmd
