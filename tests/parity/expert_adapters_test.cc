// Adapters of the stacked weights of experts (lora.targets): every layout is the one
// rank, and what data parallelism computes has its bits over the expert axis.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

using Overrides = std::vector<Override>;

class ExpertAdapters : public LayoutsTest {
 protected:
  ExpertAdapters() { prepare = fill_adapters; }

  // A dense block and sparse ones, whose stacks are adapted; with biases as GPT-OSS has them.
  static Overrides with(Overrides overrides, bool has_biases = false) {
    for (const Override& each : Overrides{{"model.family", "mixtral"},
                                          {"model.experts", "5"},
                                          {"model.expert_width", "13"},
                                          {"model.shared_experts", "1"},
                                          {"model.dense_layers", "1"},
                                          {"model.balance_loss", "0.3"},
                                          {"lora.rank", "3"},
                                          {"lora.targets", "*, *.experts.*"}}) {
      overrides.push_back(each);
    }
    if (!has_biases) return overrides;
    overrides.emplace_back("model.expert_bias", "true");
    overrides.emplace_back("model.swiglu_limit", "0.02");
    overrides.emplace_back("lora.targets", "*.experts.*");
    return overrides;
  }
};

TEST_F(ExpertAdapters, OfEveryAxisAreTheOneRanks) {
  bool has_biases = false;
  for (const AxisChoice& choice : axis_choices()) {
    auto overrides = with(choice.overrides, has_biases);
    overrides.emplace_back("train.recompute", has_biases ? "full" : "none");
    check(overrides, choice.ranks);
    has_biases = !has_biases;
  }
}

TEST_F(ExpertAdapters, OnSeveralRanksAreTheOneRanks) {
  struct Case {
    Overrides overrides;
    int ranks;
  };
  const std::vector<Case> cases = {
      {{{"parallel.expert", "2"}}, 2},
      {{{"parallel.expert", "2"}, {"parallel.zero", "1"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.zero", "3"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.tensor", "2"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}},
       4},
      {{{"parallel.expert", "4"}, {"parallel.context", "2"}}, 4},
      {{{"parallel.expert", "2"}, {"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble"}},
       4},
      {{{"parallel.expert", "2"}, {"parallel.expert_replicas", "2"}}, 2},
      {{{"parallel.expert", "2"}, {"parallel.expert_chunk", "4"}}, 4}};
  for (const Case& each : cases) {
    check(with(each.overrides), each.ranks);
    auto again = with(each.overrides, /*has_biases=*/true);
    again.emplace_back("train.recompute", "selective");
    again.emplace_back("lora.also_train", "*.experts.down_proj, *norm*");
    check(again, each.ranks);
  }
}

TEST_F(ExpertAdapters, HaveTheBitsOfDataParallelismAndOfCopies) {
  for (const char* precision : {"fp64", "fp32"}) {
    for (const int ranks : {2, 3, 4}) {
      const auto outcome = [&](int degree, const char* copies, const char* zero) {
        return run(config_of(with({{"train.precision", precision},
                                   {"train.global_batch", std::to_string(ranks)},
                                   {"parallel.zero", zero},
                                   {"parallel.expert_replicas", copies},
                                   {"parallel.expert", std::to_string(degree)}})),
                   ranks, fill_adapters);
      };
      SCOPED_TRACE(concat(precision, " on ", ranks, " ranks"));
      const StepOutcome whole = outcome(1, "0", "0"), split = outcome(ranks, "0", "0");
      EXPECT_TRUE(
          whole.gradients.contains("model.layers.1.mlp.experts.gate_up_proj.lora_A.weight"));
      EXPECT_FALSE(whole.gradients.contains("model.layers.1.mlp.experts.gate_proj"));
      EXPECT_EQ(split.loss, whole.loss);
      for (const auto& [name, gradient] : whole.gradients) {
        EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
        harness::assert_same_bits(split.gradients.at(name), gradient, name);
      }
      expect_same_bits(outcome(ranks, "2", "0"), split);
      expect_same_bits(outcome(1, "0", "3"), whole);
    }
  }
}

}  // namespace
}  // namespace trireme::train
