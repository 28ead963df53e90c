#include "trireme/tasks/language/language.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/tasks/language/kept_by_forward.h"
#include "trireme/base/error.h"
#include "trireme/model/model.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {
namespace {

TEST(StageCosts, ActivationsAreWhatAForwardKeeps) {
  const std::vector<Override> llama = {{"model.family", "llama"}};
  const std::vector<Override> grouped = {{"model.heads", "4"}, {"model.kv_heads", "2"}};
  const std::vector<Override> gpt2 = {{"model.family", "gpt2"}, {"model.kv_heads", "2"}};
  const std::vector<Override> norms = {{"model.heads", "4"}, {"model.qk_norm", "true"}};
  const std::vector<Override> wide = {
      {"model.heads", "4"}, {"model.head_width", "6"}, {"model.qk_norm", "true"}};
  const std::vector<Override> gemma = {{"model.family", "gemma"},
                                       {"model.heads", "4"},
                                       {"model.qk_norm", "true"},
                                       {"model.attention_softcap", "2"}};
  const std::vector<Override> granite = {{"model.embedding_scale", "3"},
                                         {"model.residual_scale", "0.22"},
                                         {"model.logits_divisor", "0.7"},
                                         {"model.query_scalar", "5"}};
  const std::vector<Override> olmo2 = {{"model.heads", "4"},
                                       {"model.branch_norms", "after"},
                                       {"model.qk_norm", "true"},
                                       {"model.qk_norm_over", "all"}};
  const std::vector<Override> both = {{"model.branch_norms", "both"}};
  for (const std::vector<Override>& model :
       {llama, grouped, gpt2, norms, wide, gemma, granite, olmo2, both}) {
    for (const std::string precision : {"fp32", "bf16"}) {
      for (const auto& [recompute, modules] :
           {std::pair<std::string, std::string>{"none", "attention_core"},
            {"selective", "attention_core"},
            {"selective", "attention"},
            {"selective", "feed_forward"},
            {"full", "attention_core"}}) {
        std::vector<Override> overrides = model;
        overrides.push_back({"train.precision", precision});
        overrides.push_back({"train.recompute", recompute});
        overrides.push_back({"train.recompute_modules", modules});
        expect_what_a_forward_keeps(overrides);
        if (recompute == "none") continue;
        overrides.push_back({"offload.activations", "disk"});
        expect_what_a_forward_keeps(overrides);
        overrides.push_back({"train.recompute_blocks", "4"});
        expect_what_a_forward_keeps(overrides);
        overrides.push_back({"offload.activation_blocks", "1"});
        expect_what_a_forward_keeps(overrides);
      }
    }
  }
}

// The gate keeps what it multiplies, and of each token a number before and after the sigmoid.
TEST(StageCosts, AGateOfSharedExpertsKeepsTheirResult) {
  const auto config = [](const char* gate) {
    return config_of({{"model.experts", "3"},
                      {"model.shared_experts", "2"},
                      {"model.dense_layers", "1"},
                      {"model.shared_gate", gate}});
  };
  const RunConfig gated = config("true"), plain = config("false");
  const double expected =
      sum(gated, &parallel::LayerCost::activations) - sum(plain, &parallel::LayerCost::activations);
  const double found = measured_activations(gated) - measured_activations(plain);
  const model::ModelConfig& model = model_of(gated);
  const auto blocks = static_cast<double>(model::num_sparse_blocks(model));
  const auto tokens = static_cast<double>(gated.train.micro_batch * model.sequence_length);
  EXPECT_DOUBLE_EQ(expected, blocks * tokens * static_cast<double>(model.width) * 4);
  EXPECT_GE(found, expected);
  EXPECT_LE(found, expected + blocks * tokens * 2 * 4);
}

TEST(StageCosts, AxesDivideActivationsAsTheyDivideTokensHeadsAndRows) {
  const auto block = [](const std::vector<Override>& overrides, int ranks) {
    return layer_costs(config_of(overrides, ranks))[1].activations;
  };
  const double D = 64, G = 32, F = 160, tokens = 2 * 64, item = 4;
  const double repeated = 4 * D * tokens * item;
  const double split = (2 * D + 2 * G + 3 * F) * tokens * item;
  // Two tensor ranks share the kv head: each has it whole.
  const double of_two = (2 * D + 2 * (2 * G) + 3 * F) * tokens * item / 2;
  EXPECT_DOUBLE_EQ(block({}, 1), repeated + split);
  EXPECT_DOUBLE_EQ(block({{"parallel.tensor", "2"}}, 2), repeated + of_two);
  EXPECT_DOUBLE_EQ(block({{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}, 2),
                   repeated / 2 + of_two);
  EXPECT_DOUBLE_EQ(block({{"parallel.context", "2"}}, 2), (repeated + split) / 2);
  EXPECT_DOUBLE_EQ(
      block({{"model.family", "gpt2"}, {"model.kv_heads", "2"}}, 1),
      2 * block({{"model.family", "gpt2"}, {"model.kv_heads", "2"}, {"train.precision", "bf16"}},
                1));
}

TEST(StageCosts, ATiedHeadThatCameFromAnotherRankIsCounted) {
  const auto last = [](const std::string& schedule) {
    return layer_costs(config_of({{"model.tied_embedding", "true"},
                                  {"parallel.pipeline", "2"},
                                  {"parallel.schedule", schedule}},
                                 2))
        .back()
        .activations;
  };
  EXPECT_DOUBLE_EQ(last("1f1b") - last("zero-bubble-v"), 96 * 64 * 4.0);
}

TEST(StageCosts, StatesAreThoseOfZero) {
  const auto bytes = [](std::vector<Override> overrides) {
    return state_bytes_per_parameter(config_of(std::move(overrides), 4), 64);
  };
  EXPECT_EQ(bytes({}), 16);
  EXPECT_EQ(bytes({{"optimizer.name", "lion"}}), 12);
  EXPECT_EQ(bytes({{"optimizer.name", "muon"}}), 12);
  EXPECT_EQ(bytes({{"optimizer.name", "sgd"}, {"optimizer.momentum", "0"}}), 8);
  EXPECT_EQ(bytes({{"optimizer.name", "adafactor"}}), 8 + 4 * 2 / 64.0);  // of a row, of a column
  EXPECT_EQ(bytes({{"train.precision", "fp64"}}), 32);
  EXPECT_EQ(bytes({{"offload.optimizer", "disk"}}), 8);
  EXPECT_EQ(bytes({{"parallel.zero", "3"},
                   {"train.global_batch", "8"},
                   {"offload.parameters", "disk"},
                   {"offload.gradients", "disk"}}),
            8 / 4.0);
  EXPECT_EQ(bytes({{"train.precision", "bf16"}}), 16);
  EXPECT_EQ(bytes({{"train.precision", "bf16"}, {"train.reduce_dtype", "fp32"}}), 18);
  const std::vector<double> of_zero = {16, 4 + 12 / 4.0, 2 + 14 / 4.0, 16 / 4.0};
  for (int zero = 0; zero <= 3; ++zero) {
    EXPECT_EQ(bytes({{"train.precision", "bf16"},
                     {"train.global_batch", "8"},
                     {"parallel.zero", std::to_string(zero)}}),
              of_zero[static_cast<size_t>(zero)])
        << zero;
  }
}

TEST(StageCosts, AWorkloadKnowsWhatIsTrained) {
  const auto share = [](std::vector<Override> overrides) {
    const RunConfig config = config_of(std::move(overrides));
    return config.task->model().workload(config)->sizes.trained_share;
  };
  EXPECT_EQ(share({}), 1);
  const auto all = static_cast<double>(model::num_parameters(model_of(config_of({}))));
  EXPECT_DOUBLE_EQ(share({{"train.freeze", "*embed*, lm_head.*"}}), 1 - 2 * 96 * 64 / all);
  const RunConfig adapted = config_of({{"lora.rank", "2"}});
  const auto trained = static_cast<double>(model::num_trained_parameters(model_of(adapted)));
  EXPECT_DOUBLE_EQ(share({{"lora.rank", "2"}}), trained / (all + trained));
  // Codes are as many weights as they stand for.
  EXPECT_DOUBLE_EQ(share({{"lora.rank", "2"}, {"lora.base", "nf4"}, {"model.ffn_width", "128"}}),
                   share({{"lora.rank", "2"}, {"model.ffn_width", "128"}}));
}

TEST(StageCosts, FrozenWeightsAreCountedInTheBytesThatTheyAreKeptIn) {
  const auto kept = [](const std::string& format, bool is_bf16) {
    const RunConfig config = config_of({{"lora.rank", "2"},
                                        {"lora.base", format},
                                        {"model.ffn_width", "128"},
                                        {"train.precision", is_bf16 ? "bf16" : "fp32"}});
    const model::ModelPlan plan = model::make_plan(model_of(config));
    const model::ModelPlan plain =
        model::make_plan(model_of(config_of({{"lora.rank", "2"}, {"model.ffn_width", "128"}})));
    double in_blocks = 0, all = 0;
    for (const model::ParameterPlan& parameter : plain.parameters()) {
      const auto count =
          static_cast<double>(c10::multiply_integers(parameter.layout.whole_shape()));
      all += count;
      if (parameter.name.ends_with("_proj.weight")) in_blocks += count;
    }
    return 1 - (1 - kept_share(config, plan.parameters())) * all / in_blocks;
  };
  EXPECT_NEAR(kept("run", false), 1, 1e-12);
  EXPECT_NEAR(kept("bf16", false), 0.5, 1e-12);
  EXPECT_NEAR(kept("int8", false), (1 + 4 / 64.0) / 4, 1e-12);
  EXPECT_NEAR(kept("nf4", false), (0.5 + 4 / 64.0) / 4, 1e-12);
  EXPECT_NEAR(kept("nf4", true), (0.5 + 4 / 64.0) / 2, 1e-12);
}

TEST(StageCosts, SeveralMicrobatchesHoldGradientsByTheirOrder) {
  std::string order = "microbatch-first";
  const auto bytes = [&](const std::string& microbatches, const std::string& reproducible) {
    return state_bytes_per_parameter(config_of({{"parallel.zero", "2"},
                                                {"train.global_batch", microbatches},
                                                {"train.micro_batch", "1"},
                                                {"parallel.gradient_order", order},
                                                {"train.reproducible", reproducible}},
                                               4),
                                     64);
  };
  const double weights_and_states = 4 + 8 / 4.0;
  EXPECT_EQ(bytes("4", "false"), weights_and_states + 4 / 4.0);
  EXPECT_EQ(bytes("16", "false"), weights_and_states + 4 + 4 / 4.0);
  EXPECT_EQ(bytes("4", "true"), weights_and_states + 4 / 4.0);
  // Sums of one and of two microbatches, and the part.
  EXPECT_EQ(bytes("16", "true"), weights_and_states + 2 * 4 + 4 / 4.0);
  for (const char* const rank_first : {"rank-first", "auto"}) {
    order = rank_first;
    EXPECT_EQ(bytes("16", "false"), weights_and_states + 4 / 4.0);
    EXPECT_EQ(bytes("16", "true"), weights_and_states + (1 + 2) * 4 / 4.0);
  }
}

TEST(StageCosts, EveryParameterIsCountedOnce) {
  for (const std::string tied : {"false", "true"}) {
    const RunConfig config = config_of({{"model.tied_embedding", tied}});
    EXPECT_DOUBLE_EQ(sum(config, &parallel::LayerCost::memory),
                     16.0 * static_cast<double>(model::num_parameters(model_of(config))));
  }
}

// The estimate of a rank's states beside the parameters that it holds, and those whose states are
// its own. The first rank has most experts.
TEST(StageCosts, ExpertsAreCountedWhereTheyAre) {
  struct Case {
    int ranks;
    std::vector<Override> overrides;
  };
  const std::vector<Case> cases = {{1, {}},
                                   {2, {{"parallel.expert", "2"}}},
                                   {3, {{"parallel.expert", "3"}}},
                                   {4, {{"parallel.expert", "2"}, {"parallel.zero", "1"}}},
                                   {4, {{"parallel.expert", "4"}, {"parallel.zero", "1"}}},
                                   {4, {{"parallel.expert", "2"}, {"parallel.zero", "3"}}}};
  for (const auto& [ranks, more] : cases) {
    std::vector<Override> overrides = {
        {"model.family", "mixtral"}, {"model.experts", "7"},          {"model.expert_width", "48"},
        {"model.dense_layers", "1"}, {"model.shared_experts", "1"},   {"train.global_batch", "12"},
        {"train.micro_batch", "1"},  {"train.uneven_batches", "true"}};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const RunConfig config = config_of(overrides, ranks);
    std::vector<Override> of_whole = overrides;
    of_whole.emplace_back("parallel.zero", "0");
    double held = 0, own = 0;  // parameters of rank 0
    harness::run_ranks(ranks, [&](comm::Communicator& world) {
      for (const bool is_whole : {true, false}) {
        const RunConfig run = is_whole ? config_of(of_whole, ranks) : config;
        const mesh::DeviceMesh mesh(world, mesh_axes(run.parallel));
        const ParallelModel model(run, mesh, nullptr, nullptr);
        double count = 0;
        for (const parallel::Shard& shard : model.shards()) {
          count += static_cast<double>(shard.weights.numel());
        }
        if (world.rank() == 0) (is_whole ? held : own) = count;
      }
    });
    const bool shares_weights = config.parallel.zero == 3;
    const double gradients = config.is_rank_first() ? own : held;  // of several microbatches
    const double expected = 4 * (shares_weights ? own : held) + 4 * gradients + 8 * own;
    // Every rank of a group has as much to within a row of each parameter.
    EXPECT_NEAR(sum(config, &parallel::LayerCost::memory), expected,
                config.parallel.zero == 0 ? 1e-6 : 0.02 * expected)
        << ranks;
  }
}

// Of two stages the first holds two microbatches, the second one: with less memory the first has
// fewer layers, although that is slower.
TEST(StageCosts, AMemoryLimitMovesLayersFromTheStageThatHoldsMore) {
  const auto layers = [](int64_t limit) {
    return pipeline_layout(config_of({{"parallel.pipeline", "2"},
                                      {"parallel.stage_memory", std::to_string(limit)}},
                                     2))
        .layers;
  };
  EXPECT_EQ(layers(0), (std::vector<int>{3, 3}));
  EXPECT_EQ(layers(1 << 30), (std::vector<int>{3, 3}));
  const RunConfig config = config_of({{"parallel.pipeline", "2"}}, 2);
  const std::vector<parallel::LayerCost> costs = layer_costs(config);
  const double three =
      3 * (costs[1].memory + 2 * costs[1].activations) + costs[0].memory - costs[1].memory;
  EXPECT_EQ(layers(static_cast<int64_t>(three) + 1), (std::vector<int>{3, 3}));
  EXPECT_EQ(layers(static_cast<int64_t>(three) - 1), (std::vector<int>{2, 4}));
  const std::string text = harness::message_of<ConfigError>([&] { layers(1 << 16); });
  EXPECT_NE(text.find("parallel.stage_memory is 65536 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("the best needs"), std::string::npos) << text;
}

TEST(StageCosts, StagesOfOneRankShareItsMemory) {
  const RunConfig config = config_of({{"parallel.pipeline", "2"},
                                      {"parallel.schedule", "interleaved"},
                                      {"parallel.stage_memory", "1000000000"}},
                                     2);
  const PipelineLayout layout = pipeline_layout(config);
  EXPECT_EQ(layout.num_stages(), 4);
  EXPECT_EQ(layout.split.memory_limit, 500'000'000);
  ASSERT_EQ(layout.split.held_microbatches.size(), 4u);
  EXPECT_EQ(layout.split.held_microbatches[0], layout.split.held_microbatches[2]);
}

}  // namespace
}  // namespace trireme::train
