// Direct preference optimization at every layout against one rank with the same weights, and one
// rank against the paper's formula in plain operators of libtorch.
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"
#include "tests/parity/random_layout.h"
#include "trireme/model/model.h"

namespace trireme::train {
namespace {

class PreferenceTest : public LayoutsTest {};

// -log sigmoid and the sums of log-probabilities, by autograd.
TEST_F(PreferenceTest, OneRankIsThePapersFormula) {
  for (const char* smoothing : {"0", "0.1"}) {
    for (const char* family : {"llama", "gemma"}) {
      const RunConfig config = config_of({{"model.family", family},
                                          {"model.logits_softcap", "2"},
                                          {"model.tied_embedding", "true"},
                                          {"objective.name", "dpo"},
                                          {"objective.beta", "0.3"},
                                          {"objective.label_smoothing", smoothing},
                                          {"train.micro_batch", "2"}});
      const StepOutcome actual = run(config, 1);
      const auto model = model::make_model(model_of(config), config.train.seed, at::kDouble);
      const dataset::Batch batch = batch_of(config, 0, config.train.global_batch);
      const at::Tensor logits_BTV = model->logits(batch["tokens"].flatten(0, 1));
      const at::Tensor targets_BT = batch["targets"].flatten(0, 1);
      const at::Tensor is_learnt_BT = targets_BT.ne(model::kIgnoredTarget);
      const at::Tensor logp_P2 = at::log_softmax(logits_BTV, 2)
                                     .gather(2, targets_BT.clamp_min(0).unsqueeze(2))
                                     .squeeze(2)
                                     .mul(is_learnt_BT)
                                     .sum(1)
                                     .view({-1, 2});
      const at::Tensor ratio_P2 = logp_P2 - batch["reference"];
      const at::Tensor margin_P = 0.3 * (ratio_P2.select(1, 0) - ratio_P2.select(1, 1));
      const double e = std::stod(smoothing);
      const at::Tensor loss =
          -((1 - e) * at::log_sigmoid(margin_P) + e * at::log_sigmoid(-margin_P)).mean();
      loss.backward();
      EXPECT_NEAR(actual.loss, loss.item<double>(), 1e-12);
      EXPECT_NEAR(actual.evaluated, loss.item<double>(), 1e-12);
      // The margins are neither all right nor saturated, so that every factor matters.
      EXPECT_GT(margin_P.gt(0).sum().item<int64_t>(), 0);
      EXPECT_LT(margin_P.gt(0).sum().item<int64_t>(), margin_P.numel());
      EXPECT_LT(margin_P.abs().min().item<double>(), 3);
      std::map<std::string, at::Tensor> expected;
      for (const auto& item : model->module().named_parameters()) {
        expected[item.key()] = item.value().grad();
      }
      ASSERT_EQ(actual.gradients.size(), expected.size());
      for (const auto& [name, gradient] : expected) {
        harness::assert_close(actual.gradients.at(name), gradient, 1e-11, 1e-13, name);
      }
    }
  }
}

TEST_F(PreferenceTest, EveryAxisIsTheOneRank) {
  for (const AxisChoice& choice : axis_choices()) {
    for (const char* family : {"llama", "gpt2", "mixtral"}) {
      auto overrides = joined(choice.overrides, kPreferences);
      overrides.emplace_back("model.family", family);
      overrides.emplace_back("train.micro_batch", "2");
      overrides.emplace_back("model.dropout", "0.1");
      if (std::string(family) == "gpt2") overrides.emplace_back("model.kv_heads", "6");
      if (std::string(family) == "mixtral") overrides.emplace_back("model.experts", "5");
      if (std::string(family) == "mixtral") overrides.emplace_back("model.dropout", "0");
      check(overrides, choice.ranks);
    }
    auto adapters = joined(choice.overrides, kPreferences);
    adapters.emplace_back("lora.rank", "3");
    check(adapters, choice.ranks);
  }
}

TEST_F(PreferenceTest, PairsOfAxesAndUnevenBatchesAreTheOneRank) {
  const auto with = [](const Overrides& layout) { return joined(layout, kPreferences); };
  check(with({{"parallel.context", "2"}, {"parallel.tensor", "2"}}), 4);
  check(with({{"parallel.context", "2"}, {"parallel.pipeline", "2"}, {"parallel.zero", "1"}}), 4);
  check(with({{"parallel.zero", "3"}, {"parallel.data", "2"}, {"parallel.context", "2"}}), 4);
  check(
      with({{"parallel.data", "3"}, {"train.micro_batch", "2"}, {"train.uneven_batches", "true"}}),
      3);
  check(with({{"parallel.tensor", "2"}, {"parallel.pipeline", "2"}, {"train.recompute", "full"}}),
        4);
  const Overrides experts = {{"model.family", "mixtral"}, {"model.experts", "4"}};
  check(joined(with({{"parallel.data", "2"}, {"parallel.expert", "2"}}), experts), 2);
  check(joined(with({{"parallel.context", "2"}, {"parallel.expert", "2"}}), experts), 2);
}

TEST_F(PreferenceTest, DataPipelineAndZeroAreTheSameBits) {
  const auto base = joined(kPreferences, {{"train.precision", "fp32"},
                                          {"parallel.gradient_order", "microbatch-first"},
                                          {"parallel.data", "2"}});
  const StepOutcome expected = run(config_of(base), 2);
  for (const char* zero : {"0", "1", "2", "3"}) {
    for (const char* pipeline : {"1", "2"}) {
      const auto layout = joined(base, {{"parallel.zero", zero}, {"parallel.pipeline", pipeline}});
      SCOPED_TRACE(describe(layout));
      expect_same_bits(run(config_of(layout), pipeline[0] == '1' ? 2 : 4), expected);
    }
  }
}

// With one number of microbatches, by the tree of gradients.
TEST_F(PreferenceTest, ReproducibleRunsAreTheSameBitsOnAnyNumberOfDataRanks) {
  const auto base =
      joined(kPreferences, {{"train.precision", "fp32"}, {"train.reproducible", "true"}});
  const StepOutcome expected = run(config_of(base), 1);
  for (const int data : {2, 4}) {
    const auto layout = joined(base, {{"parallel.data", std::to_string(data)}});
    expect_same_bits(run(config_of(layout), data), expected);
  }
}

}  // namespace
}  // namespace trireme::train
