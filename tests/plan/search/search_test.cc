#include "trireme/plan/search/search.h"

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/harness.h"

namespace trireme::plan {
namespace {

std::string everything_is_legal(const Workload&) { return ""; }

Workload base(int64_t global_batch) {
  Workload work = mixed(gpt(24, 2048, 16));
  work.global_batch = global_batch;
  return work;
}

SearchResult find(const Workload& work, const Cluster& cluster, const SearchOptions& options,
                  const Legality& legality = everything_is_legal) {
  return search(work, cluster, options, legality);
}

TEST(Search, TheBestFitsAndIsNoSlowerThanTheOthers) {
  const Cluster cluster = cluster_of("a100-40gb", 2, 8);
  const SearchResult found = find(base(64), cluster, {});
  ASSERT_EQ(found.best.size(), 5);
  EXPECT_GT(found.num_candidates, 100);
  EXPECT_GT(found.num_out_of_memory, 0);
  for (size_t i = 0; i < found.best.size(); ++i) {
    const Plan& plan = found.best[i];
    EXPECT_LE(plan.step.memory.total(), 0.95 * cluster.device.memory_bytes);
    EXPECT_EQ(plan.work.axes.num_ranks(), 16);
    if (i > 0) {
      EXPECT_GE(plan.step.step_seconds(), found.best[i - 1].step.step_seconds());
    }
  }
}

TEST(Search, FindsWhatIsBetterThanAnyLayoutByHand) {
  const Cluster cluster = cluster_of("a100-40gb", 2, 8);
  const SearchResult found = find(base(64), cluster, {});
  int num_fitting = 0;
  for (const int64_t tensor : {1, 2, 8}) {
    Workload work = base(64);
    work.axes.tensor = tensor;
    work.axes.data = 16 / tensor;
    const StepPrediction step = predict_step(work, cluster, stage_layout(work));
    if (step.fits()) {
      ++num_fitting;
      EXPECT_LE(found.best.front().step.step_seconds(), step.step_seconds());
    }
  }
  EXPECT_GT(num_fitting, 0);
}

TEST(Search, FixedKeysHaveTheirValues) {
  const SearchResult found = find(base(64), cluster_of("a100-40gb", 2, 8),
                                  {.fixed = {{"tensor", "4"}, {"recompute", "full"}}});
  ASSERT_FALSE(found.best.empty());
  for (const Plan& plan : found.best) {
    EXPECT_EQ(plan.work.axes.tensor, 4);
    EXPECT_TRUE(plan.work.recompute.block);
  }
}

TEST(Search, MicrobatchesAreAllThatDivideTheBatchOfARank) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const std::map<std::string, std::string> plain = {{"tensor", "1"}, {"pipeline", "1"}};
  for (const char* const micro : {"1", "3", "6"}) {
    SearchOptions options{.fixed = plain};
    options.fixed["micro_batch"] = micro;
    const SearchResult found = find(base(48), cluster, options);
    ASSERT_FALSE(found.best.empty()) << micro;
    EXPECT_EQ(std::to_string(found.best.front().work.micro_batch), micro);
    EXPECT_EQ(found.best.front().work.axes.data, 8) << micro;
  }
}

TEST(Search, InterleavedStagesAreThoseThatDivideTheLayers) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  // Of 24 layers on 4 ranks; 4 stages a rank are tried though they are uneven.
  for (const auto& [stages, is_tried] : std::map<std::string, bool>{
           {"2", true}, {"3", true}, {"4", true}, {"5", false}, {"6", true}, {"7", false}}) {
    const SearchResult found = find(
        base(64), cluster,
        {.fixed = {{"pipeline", "4"}, {"schedule", "interleaved"}, {"stages_per_rank", stages}}});
    EXPECT_EQ(!found.best.empty(), is_tried) << stages;
  }
}

TEST(Search, TensorRanksStayWithinANode) {
  const Cluster cluster = cluster_of("a100-80gb", 3, 8);
  for (const auto& [tensor, is_tried] :
       std::map<std::string, bool>{{"2", true}, {"3", false}, {"6", false}, {"8", true}}) {
    bool is_found = false;
    find(base(96), cluster, {}, [&](const Workload& work) {
      is_found = is_found || std::to_string(work.axes.tensor) == tensor;
      return "never";
    });
    EXPECT_EQ(is_found, is_tried) << tensor;
  }
}

TEST(Search, TheBestDoesNotDependOnHowManyAreShown) {
  const Cluster cluster = cluster_of("a100-40gb", 2, 8);
  const double one = find(base(64), cluster, {.num_best = 1}).best.front().step.step_seconds(),
               five = find(base(64), cluster, {}).best.front().step.step_seconds();
  EXPECT_EQ(one, five);
}

TEST(Search, AnUnknownKeyIsRefusedWithTheNearest) {
  EXPECT_THAT(
      [] {
        find(base(8), cluster_of("a100-40gb", 1, 8), {.fixed = {{"tensr", "4"}}});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("\"tensor\"")));
}

TEST(Search, WhatIsSummedInATreeHoldsMoreGradients) {
  Workload work = base(64);
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const SearchOptions one{.fixed = {{"tensor", "1"},
                                    {"pipeline", "1"},
                                    {"micro_batch", "1"},
                                    {"zero", "0"},
                                    {"recompute", "full"}}};
  const double plain = find(work, cluster, one).best.front().step.memory.model_states();
  work.reproducible = true;
  const double tree = find(work, cluster, one).best.front().step.memory.model_states();
  EXPECT_DOUBLE_EQ(plain / 16 * (16 + 3 * 2), tree);  // three sums of bf16 beside the part
}

TEST(Search, WhatTheRuntimeRefusesIsNotChosen) {
  const SearchResult found =
      find(base(64), cluster_of("a100-40gb", 1, 8), {},
           [](const Workload& work) { return work.axes.tensor == 1 ? "no" : ""; });
  ASSERT_FALSE(found.best.empty());
  EXPECT_GT(found.num_illegal, 0);
  for (const Plan& plan : found.best) EXPECT_GT(plan.work.axes.tensor, 1);
}

TEST(Search, AnUnevenMeshIsUsed) {
  const SearchResult found = find(base(60), cluster_of("a100-80gb", 3, 2), {});
  ASSERT_FALSE(found.best.empty());
  EXPECT_EQ(found.best.front().work.axes.num_ranks(), 6);
}

TEST(Search, ABatchThatDividesBySomeDevicesUsesThose) {
  const SearchResult found =
      find(base(4), cluster_of("a100-80gb", 1, 7),
           {.fixed = {{"tensor", "1"}, {"pipeline", "1"}, {"context", "1"}}});
  ASSERT_FALSE(found.best.empty());
  EXPECT_EQ(found.best.front().work.axes.num_ranks(), 4);
}

// Within the allowed ranges neither devices nor layers nor the batch make the search endless.
TEST(Search, TheLargestClustersAndModelsAreSearched) {
  Workload deep = mixed(gpt(1000, 2048, 16));
  deep.global_batch = 16384;
  const SearchResult large = find(deep, cluster_of("h100-sxm", 16384, 8), {.num_best = 2});
  ASSERT_FALSE(large.best.empty());
  EXPECT_EQ(large.best.front().step.num_devices, 131072);
  Workload deepest = mixed(gpt(65536, 128, 2));
  deepest.global_batch = 4096;
  const SearchResult found = find(deepest, cluster_of("h100-sxm", 32768, 8),
                                  {.fixed = {{"recompute", "full"}, {"micro_batch", "1"}}});
  EXPECT_GT(found.num_candidates, 0);
}

TEST(Search, DevicesThatNothingDividesAreSearchedDownwards) {
  Workload work = mixed(gpt(2, 512, 4));
  work.global_batch = 7;
  const SearchResult found = find(work, cluster_of("h100-sxm", 16381, 8), {});
  ASSERT_FALSE(found.best.empty());
  EXPECT_EQ(found.best.front().step.num_devices, 7 * 4 * 2);
}

TEST(Search, MoreDevicesThanCanBeSearchedAreRefused) {
  EXPECT_THAT([] { find(base(8), cluster_of("h100-sxm", 32768, 64), {}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("--gpus-at-most")));
}

TEST(Search, RowsDifferInMoreThanTheirSchedule) {
  const SearchResult found = find(base(64), cluster_of("a100-40gb", 2, 8), {.num_best = 20});
  ASSERT_GT(found.best.size(), 3);
  std::set<std::string> rows;
  for (const Plan& plan : found.best) {
    Workload work = plan.work;
    work.schedule = "";
    work.stages_per_rank = 0;
    EXPECT_TRUE(rows.insert(describe(work)).second) << describe(plan.work);
  }
}

TEST(Search, TheFirstRefusalIsKept) {
  const SearchResult found = find(base(64), cluster_of("a100-40gb", 1, 8), {},
                                  [](const Workload&) { return "no such thing"; });
  EXPECT_TRUE(found.best.empty());
  EXPECT_EQ(found.refusal, "no such thing");
  EXPECT_LE(found.num_illegal, 2000);
}

TEST(Search, CostMayUseFewerDevices) {
  const Cluster cluster = cluster_of("a100-80gb", 4, 8);
  const SearchResult time = find(base(32), cluster, {}),
                     cost = find(base(32), cluster, {.objective = Objective::kCost});
  EXPECT_EQ(time.best.front().work.axes.num_ranks(), 32);
  EXPECT_LE(cost.best.front().work.axes.num_ranks(), 32);
  const auto device_seconds = [](const Plan& plan) {
    return plan.step.step_seconds() * number(plan.step.num_devices);
  };
  EXPECT_LE(device_seconds(cost.best.front()), device_seconds(time.best.front()));
}

TEST(Search, WhatFitsNowhereSaysHowMuchItNeeds) {
  Cluster cluster = cluster_of("a100-80gb", 1, 1);
  cluster.device.memory_bytes = 4.0 * (1 << 30);
  const SearchResult found = find(base(8), cluster, {});
  EXPECT_TRUE(found.best.empty());
  ASSERT_FALSE(found.too_large.empty());
  EXPECT_GT(found.too_large.back().step.memory.total(), cluster.device.memory_bytes);
}

TEST(Search, SettingsAreTheConfigsKeys) {
  Workload work = base(8);
  work.axes.tensor = 2;
  work.zero = 3;
  const auto settings = settings_of(work);
  EXPECT_THAT(settings, testing::Contains(testing::Pair("parallel.tensor", "2")));
  EXPECT_THAT(settings, testing::Contains(testing::Pair("parallel.zero", "3")));
  EXPECT_THAT(settings, testing::Contains(testing::Pair("parallel.shard", "0")));
  EXPECT_EQ(describe(work), "data 1 x tensor 2, zero 3, microbatch 1, recompute none");
}

TEST(Search, HybridShardsOfANodeAreTried) {
  Workload work = base(64);
  work.axes = {.data = 32, .shard = 8, .pipeline = 2};
  work.zero = 3;
  EXPECT_EQ(describe(work),
            "data 32 x pipeline 2 (1f1b), zero 3 over 8, microbatch 1, recompute none");
  EXPECT_THAT(settings_of(work), testing::Contains(testing::Pair("parallel.shard", "8")));
  const Cluster cluster = cluster_of("a100-80gb", 8, 8);
  const SearchOptions pure{
      .fixed = {{"tensor", "1"}, {"pipeline", "1"}, {"context", "1"}, {"zero", "3"}},
      .num_best = 20};
  std::set<int64_t> shards;
  for (const Plan& plan : find(base(64), cluster, pure).best) shards.insert(plan.work.axes.shard);
  EXPECT_EQ(shards, (std::set<int64_t>{8, 64}));
  SearchOptions of_four = pure;
  of_four.fixed["shard"] = "4";
  const SearchResult found = find(base(64), cluster, of_four);
  ASSERT_FALSE(found.best.empty());
  for (const Plan& plan : found.best) EXPECT_EQ(plan.work.axes.shard, 4);
}

// The larger model fits only where ZeRO-3 divides its weights over the replicas of a stage.
TEST(Search, ZeroDividesTheStagesOfAPipeline) {
  const Cluster cluster = cluster_of("a100-40gb", 2, 8);
  const SearchOptions options{
      .fixed = {{"tensor", "1"}, {"context", "1"}, {"pipeline", "2"}, {"recompute", "full"}},
      .num_best = 20};
  std::set<int64_t> zeros;
  for (const Plan& plan : find(base(64), cluster, options).best) zeros.insert(plan.work.zero);
  EXPECT_THAT(zeros, testing::IsSupersetOf({int64_t{2}, int64_t{3}}));
  const SearchResult large = find(
      [] {
        Workload work = mixed(gpt(96, 6144, 48));
        work.global_batch = 64;
        return work;
      }(),
      cluster_of("a100-80gb", 2, 8), options);
  ASSERT_FALSE(large.best.empty());
  for (const Plan& plan : large.best) EXPECT_EQ(plan.work.zero, 3);
}

}  // namespace
}  // namespace trireme::plan
