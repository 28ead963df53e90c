// The costs of the layers of a model with an encoder and a decoder.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/live_bytes.h"
#include "tests/train/language_config.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

using train::model_of;
using train::Override;

train::RunConfig t5_config(const std::vector<Override>& overrides, int num_ranks = 1) {
  train::RunConfig config = train::parse_config(R"(
[model]
family = "t5"
layers = 3
decoder_layers = 2
width = 64
heads = 2
kv_heads = 2
head_width = 24
ffn_width = 160
sequence_length = 48
target_length = 12
vocab_size = 96
[data]
masked_share = 0.15
[train]
global_batch = 16
micro_batch = 2
)",
                                                "test", overrides);
  train::resolve(config, num_ranks);
  return config;
}

std::vector<parallel::LayerCost> costs_of(const train::RunConfig& config) {
  return config.task->model().layer_costs(config);
}

double sum_of(const std::vector<parallel::LayerCost>& costs, double parallel::LayerCost::*field) {
  return std::accumulate(costs.begin(), costs.end(), 0.0,
                         [&](double sum, const auto& cost) { return sum + cost.*field; });
}

double kept_by_a_forward(const train::RunConfig& config) {
  const auto model = model::make_model(model_of(config), 1, config.dtype());
  model->set_recompute(config.recompute_plan());
  const int64_t B = config.train.micro_batch;
  const at::Tensor tokens = at::zeros({B, 48}, at::kLong), targets = at::zeros({B, 12}, at::kLong);
  const auto live = std::make_shared<harness::LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  const model::Loss loss = model->loss(tokens, targets);
  return static_cast<double>(live->bytes());
}

// The scales of norms and each head's log-sum-exp for every token; the biases of both halves, with
// their buckets; tokens; and of what is computed again the state of a random generator.
double small_tensors(const train::RunConfig& config) {
  const double T = 2 * 48, U = 2 * 12, N = 2;
  const double numbers = T * (3 * (2 + N) + 1) + U * (2 * (3 + 2 * N) + 1);
  const double biases = 2 * (96 + 24) * (4 * N + 8);
  const double again = config.train.recompute == model::Recompute::kNone ? 0 : 7 * 5200;
  return 4 * numbers + biases + 8 * 4 * U + again;
}

TEST(Seq2SeqCosts, ActivationsAreWhatAForwardKeeps) {
  for (const std::string form : {"relu", "gated-gelu"}) {
    for (const std::string precision : {"fp32", "bf16"}) {
      for (const auto& [recompute, modules] :
           {std::pair<std::string, std::string>{"none", "attention_core"},
            {"selective", "attention_core"},
            {"selective", "attention"},
            {"selective", "feed_forward"},
            {"full", "attention_core"}}) {
        const train::RunConfig config = t5_config({{"model.feed_forward", form},
                                                   {"train.precision", precision},
                                                   {"train.recompute", recompute},
                                                   {"train.recompute_modules", modules}});
        const double expected = sum_of(costs_of(config), &parallel::LayerCost::activations);
        const double found = kept_by_a_forward(config);
        const std::string what = form + " " + precision + " " + recompute + " " + modules;
        EXPECT_GE(found, expected) << what;
        EXPECT_LE(found, expected + small_tensors(config)) << what;
      }
    }
  }
}

TEST(Seq2SeqCosts, TimesAreTheModelsOperations) {
  for (const char* tied : {"false", "true"}) {
    const train::RunConfig config = t5_config({{"model.tied_embedding", tied}});
    EXPECT_DOUBLE_EQ(sum_of(costs_of(config), &parallel::LayerCost::time),
                     model::flops_per_sequence(model_of(config)));
  }
}

// fp32 weights, gradients and two states of AdamW.
TEST(Seq2SeqCosts, MemoryIsThatOfEveryParameterOnce) {
  const train::RunConfig config = t5_config({});
  const std::vector<parallel::LayerCost> costs = costs_of(config);
  EXPECT_DOUBLE_EQ(sum_of(costs, &parallel::LayerCost::memory),
                   16.0 * static_cast<double>(model::num_parameters(model_of(config))));
  // Embedding and biases are with the first block, the head and a norm with the last.
  const double block = 16 * (4 * 64 * 48 + 2 * 64 * 160 + 2 * 64);
  EXPECT_DOUBLE_EQ(costs[1].memory, block);
  EXPECT_DOUBLE_EQ(costs[0].memory, block + 16 * (96 * 64 + 32 * 2));
  EXPECT_DOUBLE_EQ(costs[2].memory, block + 16 * 64);
  EXPECT_DOUBLE_EQ(costs[3].memory, block + 16 * (4 * 64 * 48 + 64 + 32 * 2));
  EXPECT_DOUBLE_EQ(costs[4].memory, block + 16 * (4 * 64 * 48 + 64 + 64 + 96 * 64));
  EXPECT_DOUBLE_EQ(costs_of(t5_config({{"parallel.tensor", "2"}}, 2))[1].memory, block / 2);
}

}  // namespace
}  // namespace trireme::tasks
