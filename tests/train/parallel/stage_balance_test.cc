#include "trireme/train/parallel/stage_balance.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::train {
namespace {

// One microbatch whose forward took `seconds` on each stage of the rank.
parallel::PipelineProfile profile_of(const std::vector<std::pair<int, double>>& stages) {
  parallel::PipelineProfile profile;
  double now = 0;
  for (const auto& [stage, seconds] : stages) {
    profile.actions.push_back({.action = {.kind = parallel::ActionKind::kForward, .stage = stage},
                               .start = now,
                               .end = now + seconds});
    now += seconds;
  }
  return profile;
}

TEST(StageBalance, MovesLayersFromTheSlowestStageOnEveryRankAlike) {
  // Two pipelines of two ranks; the second stage takes three times as long.
  harness::run_ranks(4, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"pipeline", 2}, {"data", 2}});
    const int rank = mesh.coordinate("pipeline");
    StageBalance balance({.layers = {3, 3}, .rank_of_stage = {0, 1}, .num_ranks = 2}, mesh);
    EXPECT_FALSE(balance.better_layers(0.1));  // nothing measured
    for (int step = 0; step < 3; ++step) {
      balance.add(profile_of({{rank, rank == 0 ? 1.0 : 3.0}}));
    }
    const auto layers = balance.better_layers(0.1);
    ASSERT_TRUE(layers);
    EXPECT_EQ(*layers, (std::vector<int>{4, 2}));
    EXPECT_DOUBLE_EQ(balance.stage_seconds()[1], 3.0);
  });
}

TEST(StageBalance, MovesLayersBetweenStagesThatShareARank) {
  // Stages 0 and 2 on rank 0, 1 and 3 on rank 1; a layer takes a second wherever it is.
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"pipeline", 2}});
    StageBalance balance({.layers = {5, 1, 1, 1}, .rank_of_stage = {0, 1, 0, 1}, .num_ranks = 2},
                         mesh);
    balance.add(world.rank() == 0 ? profile_of({{0, 5.0}, {2, 1.0}})
                                  : profile_of({{1, 1.0}, {3, 1.0}}));
    const auto layers = balance.better_layers(0.1);
    ASSERT_TRUE(layers);
    EXPECT_EQ(*layers, (std::vector<int>{2, 2, 2, 2}));
    EXPECT_EQ(balance.stage_seconds(), (std::vector<double>{5, 1, 1, 1}));
  });
}

TEST(StageBalance, LeavesStagesAloneWhoseTimesDifferLittle) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"pipeline", 2}});
    StageBalance balance({.layers = {3, 3}, .rank_of_stage = {0, 1}, .num_ranks = 2}, mesh);
    balance.add(profile_of({{world.rank(), world.rank() == 0 ? 1.0 : 1.05}}));
    EXPECT_FALSE(balance.better_layers(0.1));
  });
}

TEST(StageBalance, LayersAreWrittenAsTheConfigReadsThem) { EXPECT_EQ(to_text({3, 1, 2}), "3,1,2"); }

}  // namespace
}  // namespace trireme::train
