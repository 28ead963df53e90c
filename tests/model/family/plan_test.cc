#include "trireme/model/family/plan.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

// Nothing divides: 6 query heads in 2 groups, 25 feed-forward rows, 37 tokens.
const ModelConfig kLlama{.layers = 2,
                         .width = 24,
                         .heads = 6,
                         .kv_heads = 2,
                         .ffn_width = 25,
                         .sequence_length = 7,
                         .vocab_size = 37};

ModelConfig gpt2() {
  ModelConfig config = kLlama;
  config.family = "gpt2";
  config.kv_heads = config.heads;
  return config;
}

ModelConfig tied() {
  ModelConfig config = kLlama;
  config.tied_embedding = true;
  return config;
}

at::Tensor part_of(const at::Tensor& whole, const mesh::Box& box) {
  at::Tensor part = whole;
  for (size_t d = 0; d < box.size.size(); ++d) {
    part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  }
  return part.contiguous();
}

TEST(ModelPlan, ListsEveryParameterInTheModelsOrderWithItsShape) {
  for (const ModelConfig& config : {kLlama, gpt2(), tied()}) {
    const ModelPlan plan = make_plan(config);
    const auto model = make_model(config, 1, at::kFloat);
    const auto parameters = model->module().named_parameters();
    ASSERT_EQ(plan.parameters().size(), parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(plan.parameters()[i].name, parameters[i].key());
      EXPECT_EQ(at::IntArrayRef(plan.parameters()[i].layout.shape()),
                parameters[i].value().sizes());
    }
  }
}

TEST(ModelPlan, EveryRankDrawsItsPartOfTheWholeModel) {
  for (const ModelConfig& config : {kLlama, gpt2()}) {
    const auto whole = make_model(config, 3, at::kFloat);
    const auto expected = whole->module().named_parameters();
    for (const int ranks : {2, 3, 4, 5, 6}) {
      const ModelPlan plan = make_plan(config, {.tensor = ranks});
      harness::run_ranks(ranks, [&](comm::Communicator& group) {
        const auto model = make_model(config, 3, at::kFloat, {.tensor = {.group = &group}});
        for (const auto& item : model->module().named_parameters()) {
          const mesh::Box box = plan.layout(item.key()).local_box(group.rank());
          harness::assert_same_bits(item.value().detach(),
                                    part_of(expected[item.key()].detach(), box), item.key());
        }
      });
    }
  }
}

// The oracle: one rank with the same weights. Loss and every gradient, whatever the degree, rows
// whole or split, communication hidden or not.
TEST(TensorParallelModel, HasTheLossAndTheGradientsOfOneRank) {
  for (const ModelConfig& config : {kLlama, gpt2(), tied()}) {
    const auto whole = make_model(config, 3, at::kDouble);
    const at::Tensor tokens = at::arange(14, at::kLong).mul(11).remainder(37).view({2, 7});
    const at::Tensor targets = at::arange(14, at::kLong).mul(5).add(3).remainder(37).view({2, 7});
    targets[1][2] = kIgnoredTarget;
    const Loss expected = whole->loss(tokens, targets);
    expected.sum.backward();
    const auto parameters = whole->module().named_parameters();
    for (const int ranks : {1, 2, 3, 4, 5}) {
      const ModelPlan plan = make_plan(config, {.tensor = ranks});
      for (const bool sequence : {false, true}) {
        for (const bool recompute : {false, true}) {
          SCOPED_TRACE(concat(config.family, ", ", ranks, " ranks, sequence ", sequence,
                              ", recompute ", recompute));
          harness::run_ranks(ranks, [&](comm::Communicator& group) {
            const auto model =
                make_model(config, 3, at::kDouble,
                           {.tensor = {.group = &group,
                                       .sequence = sequence,
                                       .overlap = std::make_shared<const bool>(recompute)}});
            model->set_recompute({.block = recompute});
            const Loss loss = model->loss(tokens, targets);
            EXPECT_EQ(loss.count, expected.count);
            harness::assert_close(loss.sum.detach(), expected.sum.detach(), 1e-10, 0, "loss");
            loss.sum.backward();
            for (const auto& item : model->module().named_parameters()) {
              const mesh::Box box = plan.layout(item.key()).local_box(group.rank());
              const at::Tensor& oracle = parameters[item.key()].grad();
              double scale = oracle.abs().max().item<double>();
              // Softmax does not see the bias of k: its gradient is the rounding of its terms.
              if (item.key().ends_with("k_proj.bias")) scale = 1;
              const double bound = 1e-10 * scale;
              harness::assert_close(item.value().grad(), part_of(oracle, box), 0, bound,
                                    item.key());
            }
          });
        }
      }
    }
  }
}

TEST(TensorParallelModel, ReplicatedParametersGetTheSameGradientBitsOnAllRanks) {
  for (const ModelConfig& config : {kLlama, gpt2()}) {
    const ModelPlan plan = make_plan(config, {.tensor = 3});
    for (const bool sequence : {false, true}) {
      harness::run_ranks(3, [&](comm::Communicator& group) {
        const auto model =
            make_model(config, 3, at::kFloat, {.tensor = {.group = &group, .sequence = sequence}});
        const at::Tensor tokens = at::arange(14, at::kLong).view({2, 7});
        model->loss(tokens, tokens).sum.backward();
        for (const auto& item : model->module().named_parameters()) {
          if (plan.layout(item.key()).placements()[0].kind != mesh::Placement::Kind::kReplicated) {
            continue;
          }
          at::Tensor of_root = item.value().grad().clone();
          group.broadcast(of_root, 0)->wait();
          harness::assert_same_bits(item.value().grad(), of_root, item.key());
        }
      });
    }
  }
}

TEST(ModelPlan, MoreRanksThanHeadsAreRefusedWithTheKeyToChange) {
  try {
    make_plan(kLlama, {.tensor = 7});
    FAIL() << "seven ranks shared six heads";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("parallel.tensor is 7 and model.heads is 6"),
              std::string::npos)
        << error.what();
  }
}

TEST(TensorCuts, QueryHeadsFollowTheirKvHeadsWhileThereAreEnough) {
  const TensorCuts two(kLlama, 2);
  EXPECT_EQ(two.heads, (std::vector<int64_t>{0, 3, 6}));
  EXPECT_EQ(two.kv_heads, (std::vector<int64_t>{0, 1, 2}));
  const TensorCuts four(kLlama, 4);
  EXPECT_EQ(four.heads, (std::vector<int64_t>{0, 2, 4, 5, 6}));
  EXPECT_TRUE(four.kv_heads.empty());
  EXPECT_EQ(four.kv_heads_of(1, kLlama), (mesh::Range{0, 2}));
  EXPECT_EQ(four.kv_heads_of(3, kLlama), (mesh::Range{1, 1}));
}

}  // namespace
}  // namespace trireme::model
