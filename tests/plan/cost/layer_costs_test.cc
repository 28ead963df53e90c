#include "trireme/plan/cost/layer_costs.h"

#include <gtest/gtest.h>

#include "tests/plan/harness.h"

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

}  // namespace
}  // namespace trireme::plan
