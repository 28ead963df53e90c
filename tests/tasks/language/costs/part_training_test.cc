#include "trireme/tasks/language/costs/part_training.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/tasks/language/kept_by_forward.h"
#include "trireme/plan/device/cluster.h"
#include "trireme/plan/step/stage_seconds.h"
#include "trireme/plan/step/step_prediction.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::train {
namespace {

const std::vector<std::vector<Override>> kPartlyTrained = {
    {{"train.freeze", "*embed*"}},
    {{"train.freeze", "*embed*, lm_head.*"}},
    {{"train.freeze", "*embed*, model.layers.[0-2].*"}},
    {{"train.freeze", "*norm*, *mlp*"}},
    {{"lora.rank", "3"}},
    {{"lora.rank", "3"}, {"lora.dropout", "0.1"}},
    {{"lora.rank", "3"}, {"lora.dora", "true"}},
    {{"lora.rank", "3"}, {"lora.targets", "*.q_proj, *.down_proj"}},
    {{"lora.rank", "3"}, {"lora.targets", "*layers.[345].*"}, {"lora.also_train", "lm_head.*"}},
    {{"lora.rank", "3"}, {"lora.also_train", "*norm*, *.o_proj.weight"}},
    {{"lora.rank", "3"}, {"lora.base", "nf4"}, {"model.ffn_width", "128"}}};

TEST(PartTraining, ActivationsAreWhatAForwardKeepsWhereSomeParametersAreFrozen) {
  for (const std::vector<Override>& trained : kPartlyTrained) {
    for (const std::string precision : {"fp32", "bf16"}) {
      for (const auto& [recompute, modules] :
           {std::pair<std::string, std::string>{"none", "attention_core"},
            {"selective", "attention"},
            {"selective", "feed_forward"},
            {"full", "attention_core"}}) {
        std::vector<Override> overrides = trained;
        overrides.push_back({"train.precision", precision});
        overrides.push_back({"train.recompute", recompute});
        overrides.push_back({"train.recompute_modules", modules});
        expect_what_a_forward_keeps(overrides);
      }
    }
  }
}

// The products of rows with A, once for gate and up; what one token meets of all experts'.
TEST(PartTraining, AdaptersOfStackedExpertsKeepARowsProductsWithA) {
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const std::string recompute : {"none", "selective"}) {
      const auto config = [&](const char* targets) {
        return config_of({{"model.family", "mixtral"},
                          {"model.experts", "4"},
                          {"model.experts_per_token", "2"},
                          {"model.dense_layers", "1"},
                          {"lora.rank", "3"},
                          {"lora.targets", targets},
                          {"train.precision", precision},
                          {"train.recompute", recompute},
                          {"train.recompute_modules", "feed_forward"}});
      };
      const RunConfig with = config("*, *.experts.*"), without = config("*");
      const double expected = sum(with, &parallel::LayerCost::activations) -
                              sum(without, &parallel::LayerCost::activations);
      const double rows = 5 * 2 * 64 * 2;  // of five blocks, two sequences, two experts a token
      const double item = precision == "fp32" ? 4 : 2;
      EXPECT_DOUBLE_EQ(expected, recompute == "none" ? rows * 2 * 3 * item : 0);
      EXPECT_DOUBLE_EQ(measured_activations(with) - measured_activations(without), expected);
    }
  }
}

// Of rank 0: elements of weights in the run's dtype, those that are trained, and those of them
// whose states are its own.
struct HeldElements {
  double weights = 0, trained = 0, own = 0;
};
HeldElements held_by_first_rank(const RunConfig& config, int ranks) {
  HeldElements held;
  harness::run_ranks(ranks, [&](comm::Communicator& world) {
    RunConfig whole = config;
    whole.parallel.zero = 0;
    for (const bool is_whole : {true, false}) {
      const RunConfig& run = is_whole ? whole : config;
      const mesh::DeviceMesh mesh(world, mesh_axes(run.parallel));
      const ParallelModel model(run, mesh, nullptr, nullptr);
      if (world.rank() != 0) continue;
      for (const parallel::Shard& shard : model.shards()) {
        const auto elements = static_cast<double>(shard.weights.numel());
        if (is_whole) held.weights += static_cast<double>(shard.weights.nbytes()) / 4;
        if (shard.is_trained) (is_whole ? held.trained : held.own) += elements;
      }
    }
  });
  return held;
}

// In all words of the planner: bytes of a rank, and what its data ranks reduce.
TEST(PartTraining, StatesAndReducedGradientsAreThoseOfTrainedParameters) {
  const plan::Cluster cluster{.device = plan::device_named("cpu"), .devices_per_node = 2};
  std::vector<std::vector<Override>> cases = kPartlyTrained;
  cases.push_back({{"lora.rank", "3"},
                   {"model.family", "mixtral"},
                   {"model.experts", "4"},
                   {"lora.targets", "*, *.experts.*"}});
  for (const std::vector<Override>& trained : cases) {
    for (const std::string zero : {"0", "1", "2"}) {
      std::vector<Override> overrides = trained;
      overrides.push_back({"parallel.zero", zero});
      overrides.push_back({"train.global_batch", "4"});
      SCOPED_TRACE(describe(overrides));
      const RunConfig config = config_of(overrides, 2);
      const HeldElements held = held_by_first_rank(config, 2);
      const double gradients = zero == "2" ? held.own : held.trained;
      // Shards of ranks differ by less than a row of a parameter.
      const double some = zero == "0" ? 1e-6 : 0.01 * 4 * held.trained;
      EXPECT_NEAR(sum(config, &parallel::LayerCost::memory),
                  4 * held.weights + 4 * gradients + 8 * held.own, 3 * some);
      const plan::Workload work = *config.task->model().workload(config);
      const plan::StepPrediction step = plan::predict_step(work, cluster, plan::stage_layout(work));
      EXPECT_NEAR(step.memory.weights, 4 * held.weights, 1e-6);
      EXPECT_NEAR(step.memory.gradients, 4 * gradients, some);
      EXPECT_NEAR(step.memory.states, 8 * held.own, 2 * some);
      const plan::StageSeconds stage = plan::stage_seconds(work, cluster, {.num_layers = 6});
      EXPECT_NEAR(stage.parameters.trained + stage.expert_parameters.trained, held.trained, 1e-6);
      EXPECT_DOUBLE_EQ(step.model_flops, 4 * config.task->model().flops_per_sample(config));
    }
  }
}

// The first stage has neither gradients nor states.
TEST(PartTraining, AStageOfFrozenBlocksHasWeightsOnly) {
  const RunConfig config =
      config_of({{"parallel.pipeline", "2"}, {"train.freeze", "*embed*, model.layers.[0-4].*"}}, 2);
  const std::vector<parallel::LayerCost> costs = layer_costs(config);
  for (size_t layer = 0; layer < 5; ++layer) {
    EXPECT_DOUBLE_EQ(costs[layer].time, costs[5].time / 3 - 2 * 96 * 64);  // without the head
    EXPECT_EQ(costs[layer].activations, 0);
  }
  const double block = static_cast<double>(model::block_parameters(model_of(config), false));
  EXPECT_DOUBLE_EQ(costs[1].memory, 4 * block);
  EXPECT_DOUBLE_EQ(costs[0].memory, 4 * (block + 97 * 64) + 12 * 64);  // and the last norm
  EXPECT_GT(pipeline_layout(config).layers[0], 3);
}

}  // namespace
}  // namespace trireme::train
