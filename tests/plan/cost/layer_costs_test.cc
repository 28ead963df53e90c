#include "trireme/plan/cost/layer_costs.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/plan/harness.h"
#include "trireme/plan/step/step_prediction.h"

namespace trireme::plan {
namespace {

// Bytes that a middle layer keeps for each number of the residual stream: s b h.
double kept(const Workload& work, bool stores_scores = false) {
  return layer_costs(work, stores_scores)[1].activations /
         (number(work.micro_batch) * 2048 * number(work.model.width));
}

// Source: Korthikanti et al. 2022, arXiv:2205.05198, table 2: 34 with dropout, whose masks these
// layers do not have, and 5 a s / h of scores
TEST(LayerCosts, AreKorthikantisActivations) {
  Workload work = mixed(gpt(3, 6144, 64));
  work.micro_batch = 4;
  EXPECT_DOUBLE_EQ(kept(work), 8 + 8 + 16);  // norms, attention, feed-forward
  EXPECT_DOUBLE_EQ(kept(work, true) - kept(work), 5.0 * 64 * 2048 / 6144);
  set_recompute(work, model::Recompute::kSelective);
  EXPECT_DOUBLE_EQ(kept(work, true), kept(work));
  work.axes.tensor = 8;
  EXPECT_DOUBLE_EQ(kept(work), 8 + 24.0 / 8);
  work.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(kept(work), 32.0 / 8);
  work.sequence_parallel = false;
  set_recompute(work, model::Recompute::kFull);
  EXPECT_DOUBLE_EQ(kept(work), 2);
}

TEST(LayerCosts, TheEndsHaveEmbeddingAndHead) {
  model::ModelConfig config = gpt(3, 64, 4);
  config.family = "llama";
  const Workload work = mixed(config);
  const std::vector<parallel::LayerCost> costs = layer_costs(work);
  EXPECT_DOUBLE_EQ(costs[0].memory - costs[1].memory, 16 * (51200 * 64 + 64));
  EXPECT_DOUBLE_EQ(costs[2].memory - costs[1].memory, 16 * 51200 * 64);
  EXPECT_DOUBLE_EQ(costs[2].time - costs[1].time, 6.0 * 51200 * 64);
}

TEST(LayerCosts, PartsAddUpByTheKindsOfTheirLayers) {
  Workload work = mixed(sparse_llama());
  work.model.sparse.expert_interval = 2;
  const std::vector<parallel::LayerCost> all = layer_costs(work);
  const LayerKinds kinds = layer_kinds(work);
  for (int64_t first = 0, last = work.model.layers; first < last; ++first) {
    for (int64_t count = 1; first + count <= last; ++count) {
      double memory = 0, time = 0;
      for (int64_t i = first; i < first + count; ++i) {
        memory += all[static_cast<size_t>(i)].memory;
        time += all[static_cast<size_t>(i)].time;
      }
      const parallel::LayerCost part = kinds.of(work.model, {.first_layer = first,
                                                             .num_layers = count,
                                                             .embeds = first == 0,
                                                             .has_head = first + count == last});
      EXPECT_NEAR(part.memory, memory, 1e-9 * memory);
      EXPECT_NEAR(part.time, time, 1e-9 * time);
    }
  }
}

TEST(LayerCosts, TheFirstBlocksOfEachStageRecompute) {
  const auto recomputed = [](int64_t layers, int64_t pipeline, const std::string& schedule,
                             int64_t stages_per_rank, int64_t blocks) {
    Workload work = mixed(gpt(layers, 1024, 16));
    work.axes.pipeline = pipeline;
    work.schedule = schedule;
    work.stages_per_rank = stages_per_rank;
    set_recompute(work, model::Recompute::kFull);
    const double all = layer_costs(work)[1].activations;
    work.recompute.num_blocks = blocks;
    std::vector<int> which;
    const auto costs = layer_costs(work);
    for (size_t i = 0; i < costs.size(); ++i) {  // the last has the head
      if (costs[i].activations < 2 * all) which.push_back(static_cast<int>(i));
    }
    return which;
  };
  EXPECT_EQ(recomputed(6, 1, "1f1b", 0, 4), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(recomputed(6, 1, "1f1b", 3, 4), (std::vector{0, 1, 2, 3}));  // one rank, one stage
  // The head's stage has fewer blocks.
  const StageLayout two = stage_layout([] {
    Workload work = mixed(gpt(40, 1024, 16));
    work.axes.pipeline = 2;
    work.schedule = "interleaved";
    return work;
  }());
  ASSERT_EQ(two.layers.size(), 4);  // the schedule's default
  std::vector<int> expected;
  int first = 0;
  for (const int count : two.layers) {
    for (int i = 0; i < std::min(count, 2); ++i) expected.push_back(first + i);
    first += count;
  }
  EXPECT_EQ(recomputed(40, 2, "interleaved", 0, 2), expected);
}

}  // namespace
}  // namespace trireme::plan
