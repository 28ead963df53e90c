#include "trireme/model/layers/recompute.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include "tests/harness/tensors.h"
#include "tests/model/small_config.h"
#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

at::Tensor numbers(at::IntArrayRef shape) {
  return (at::arange(at::zeros(shape).numel(), at::kFloat) * 0.37).sin().view(shape);
}

struct Result {
  at::Tensor output, grad_x, grad_w;
  int calls = 0;
};

// Dropout between two products; once kept, once computed again.
Result run(bool again, bool x_needs_gradient = true) {
  at::manual_seed(5);
  Result result;
  const at::Tensor x = numbers({4, 6}).requires_grad_(x_needs_gradient);
  const at::Tensor w = numbers({6, 6}).requires_grad_();
  const auto function = [&](const std::vector<at::Tensor>& inputs) {
    ++result.calls;
    return at::dropout(at::tanh(inputs[0].mm(w)), 0.5, true).mm(w);
  };
  const at::Tensor y = recompute_if(again, function, {x});
  // What is drawn between forward and backward must not matter, nor change.
  const at::Tensor other = at::rand({3});
  (y * numbers({4, 6})).sum().backward();
  result.output = at::cat({y.detach().flatten(), other, at::rand({3})});
  result.grad_x = x.grad();
  result.grad_w = w.grad();
  return result;
}

TEST(Recompute, HasTheBitsOfKeepingAndReplaysRandomNumbers) {
  const Result kept = run(false);
  const Result again = run(true);
  EXPECT_EQ(kept.calls, 1);
  EXPECT_EQ(again.calls, 2);
  harness::assert_same_bits(again.output, kept.output, "output and later random numbers");
  harness::assert_same_bits(again.grad_x, kept.grad_x, "gradient of x");
  harness::assert_same_bits(again.grad_w, kept.grad_w, "gradient of w");
}

TEST(Recompute, WeightsGetGradientsThoughNoInputNeedsOne) {
  harness::assert_same_bits(run(true, false).grad_w, run(false, false).grad_w, "gradient of w");
}

class CountedTanh : public torch::autograd::Function<CountedTanh> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            int* num_backwards) {
    ctx->saved_data["count"] = reinterpret_cast<int64_t>(num_backwards);
    at::Tensor y = at::tanh(x);
    ctx->save_for_backward({y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    ++*reinterpret_cast<int*>(ctx->saved_data["count"].toInt());
    const at::Tensor y = ctx->get_saved_variables()[0];
    return {grads[0] * (1 - y * y), at::Tensor()};
  }
};

// What is before the first trained weight has no backward, computed again or not.
TEST(Recompute, WhatNoInputAndNoWeightLearnsThroughHasNoBackward) {
  for (const bool again : {false, true}) {
    for (const bool x_needs_gradient : {false, true}) {
      int num_backwards = 0;
      const at::Tensor x = numbers({4, 6}).requires_grad_(x_needs_gradient);
      const at::Tensor w = numbers({6, 6}).requires_grad_();
      const auto function = [&](const std::vector<at::Tensor>& inputs) {
        return CountedTanh::apply(inputs[0], &num_backwards).mm(w);
      };
      recompute_if(again, function, {x}).sum().backward();
      EXPECT_EQ(num_backwards, x_needs_gradient ? 1 : 0) << again;
      EXPECT_EQ(x.grad().defined(), x_needs_gradient) << again;
      EXPECT_TRUE(w.grad().defined()) << again;
    }
  }
}

TEST(Recompute, RunsOnceWithoutGradients) {
  const c10::NoGradGuard no_grad;
  int calls = 0;
  recompute([&](const std::vector<at::Tensor>& x) { return ++calls, x[0] * 2; }, {numbers({3})});
  EXPECT_EQ(calls, 1);
}

TEST(Recompute, AFunctionThatStopsTheGradientHasNone) {
  const at::Tensor x = numbers({3}).requires_grad_();
  const auto detached = [](const std::vector<at::Tensor>& x) { return x[0].detach() * 2; };
  (recompute(detached, {x}) + x).sum().backward();
  harness::assert_same_bits(x.grad(), at::ones_like(x), "gradient beside the function");
}

TEST(Recompute, PlansAreNamed) {
  EXPECT_TRUE(recompute_plan(Recompute::kFull, "").block);
  const RecomputePlan plan = recompute_plan(Recompute::kSelective, "attention_core, feed_forward");
  EXPECT_TRUE(plan.attention_core && plan.feed_forward);
  EXPECT_FALSE(plan.attention || plan.block);
  EXPECT_FALSE(recompute_plan(Recompute::kNone, "attention").attention);
  EXPECT_THROW(recompute_plan(Recompute::kSelective, ""), ConfigError);
  EXPECT_THROW(recompute_plan(Recompute::kSelective, "mlp"), ConfigError);
}

TEST(Recompute, TheFirstBlocksOfAStageRecomputeAndStoreAndTheOthersKeep) {
  const RecomputePlan plan{.attention = true, .num_blocks = 3, .num_stored = 1};
  EXPECT_TRUE(plan.of_block(2).attention);
  EXPECT_EQ(plan.of_block(3), RecomputePlan());
  const auto runs = [](const RecomputePlan& plan, int64_t blocks) {
    std::vector<std::vector<int64_t>> result;
    for (const BlockRun& run : plan.runs(blocks)) {
      EXPECT_EQ(run.plan, plan.of_block(run.first));
      EXPECT_EQ(run.plan, plan.of_block(run.first + run.count - 1));
      result.push_back({run.first, run.count, run.plan.any(), run.plan.num_stored > 0});
    }
    return result;
  };
  using Runs = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(runs(plan, 5), (Runs{{0, 1, 1, 1}, {1, 2, 1, 0}, {3, 2, 0, 1}}));
  EXPECT_EQ(runs(plan, 2), (Runs{{0, 1, 1, 1}, {1, 1, 1, 0}}));
  EXPECT_EQ(runs({.block = true, .num_blocks = 1, .num_stored = 4}, 5),
            (Runs{{0, 1, 1, 1}, {1, 3, 0, 1}, {4, 1, 0, 1}}));
  EXPECT_EQ(runs({.block = true}, 7), (Runs{{0, 7, 1, 1}}));
  EXPECT_TRUE(runs(plan, 0).empty());
}

// Keeps copies.
class CountingStore : public InputStore {
 public:
  int64_t put(const at::Tensor& input) override {
    kept_[++num_put] = input.clone();
    return num_put;
  }
  at::Tensor take(int64_t number) override { return kept_.extract(number).mapped(); }
  void drop(int64_t number) noexcept override { kept_.erase(number); }

  int64_t num_put = 0;

 private:
  std::map<int64_t, at::Tensor> kept_;
};

// The loss, and the gradient of each weight that is trained. Adapters do not begin at zero, where
// nothing would come through them.
std::vector<at::Tensor> gradients_of(const ModelConfig& config, const RecomputePlan& plan,
                                     std::shared_ptr<InputStore> store = nullptr) {
  const StoresInputs scope(std::move(store));
  const auto model = make_model(config, 3, at::kFloat);
  model->set_recompute(plan);
  for (const auto& parameter : model->module().named_parameters()) {
    const c10::NoGradGuard no_grad;
    if (!parameter.key().ends_with(kAdapterB)) continue;
    parameter.value().copy_(numbers(parameter.value().sizes()));
  }
  const at::Tensor tokens = at::arange(16).remainder(11).view({2, 8});
  const Loss loss = model->loss(tokens, tokens, TrainingPlace{.step = 4, .first_sample = 6});
  loss.sum.backward();
  std::vector<at::Tensor> result{loss.sum.detach()};
  for (const at::Tensor& p : model->module().parameters()) {
    if (p.requires_grad()) result.push_back(p.grad());
  }
  return result;
}

// Every plan of both families: loss and each gradient.
TEST(Recompute, ModelsHaveTheSameGradientsWithEveryPlan) {
  for (const auto& [family, dropout, norms] : {std::tuple("llama", 0.0, BranchNorms::kBefore),
                                               {"llama", 0.3, BranchNorms::kBefore},
                                               {"llama", 0.3, BranchNorms::kAfter},
                                               {"gpt2", 0.0, BranchNorms::kBefore},
                                               {"gpt2", 0.3, BranchNorms::kBefore}}) {
    ModelConfig config = small_config(family, dropout);
    config.branch_norms = norms;
    if (norms == BranchNorms::kAfter) {
      config.attention.qk_norm = true;
      config.attention.qk_norm_over = QkNormOver::kAll;
      config.sparse.experts = 5;  // these use a branch's input more than once
      config.sparse.shared_experts = 1;
    }
    const auto gradients = [&](const RecomputePlan& plan,
                               std::shared_ptr<InputStore> store = nullptr) {
      return gradients_of(config, plan, std::move(store));
    };
    const auto expected = gradients({});
    for (const RecomputePlan& plan :
         {RecomputePlan{.block = true}, RecomputePlan{.attention = true},
          RecomputePlan{.attention_core = true}, RecomputePlan{.feed_forward = true},
          RecomputePlan{.block = true, .attention = true, .attention_core = true}}) {
      const auto actual = gradients(plan);
      for (size_t i = 0; i < expected.size(); ++i) {
        harness::assert_same_bits(actual[i], expected[i], family + std::to_string(i));
      }
    }
    for (auto [plan, of_block] : {std::pair(RecomputePlan{.block = true}, 1),
                                  {RecomputePlan{.attention = true, .feed_forward = true}, 4},
                                  {RecomputePlan{.attention_core = true}, 3}}) {
      for (const int64_t blocks : {1, 2}) {
        for (const int64_t stored : {0, 1, 2}) {
          plan.num_blocks = blocks;
          plan.num_stored = stored;
          const auto store = std::make_shared<CountingStore>();
          const auto actual = gradients(plan, store);
          // Before a norm behind it, a branch does not add the residual stream itself.
          const bool has_one_input = norms == BranchNorms::kAfter && plan.attention;
          EXPECT_EQ(store->num_put, std::min(blocks, stored) * of_block / (has_one_input ? 2 : 1));
          for (size_t i = 0; i < expected.size(); ++i) {
            harness::assert_same_bits(actual[i], expected[i], family + std::to_string(i));
          }
        }
      }
    }
  }
}

// An adapter that drops is one more use of its layer's input: beside the residual stream where no
// norm is between them, and of what all layers of a decoder read.
TEST(Recompute, InputsOfSeveralUsesHaveTheSameGradients) {
  for (const char* family : {"bert", "t5"}) {
    ModelConfig config = small_config(family, 0.3);
    config.lora.rank = 3;
    config.lora.dropout = 0.4;
    const auto expected = gradients_of(config, {});
    for (const RecomputePlan& plan :
         {RecomputePlan{.block = true}, RecomputePlan{.attention = true},
          RecomputePlan{.attention_core = true},
          RecomputePlan{.attention = true, .feed_forward = true}}) {
      const auto actual = gradients_of(config, plan);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        harness::assert_same_bits(actual[i], expected[i], family + std::to_string(i));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::model
