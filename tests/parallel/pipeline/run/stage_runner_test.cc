#include "trireme/parallel/pipeline/run/stage_runner.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

// tanh(x w), computed again in its backward.
class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    return at::tanh(x * weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor x = saved[0].detach().requires_grad_();
    at::Tensor y;
    {
      const c10::AutoGradMode records(true);
      y = at::tanh(x * saved[1]);  // the weight's gradient goes straight to the weight
    }
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

TEST(StageRunner, AStageMayComputeItsActivationsAgain) {
  const at::Tensor weight = at::full({2}, 0.3, at::kDouble).requires_grad_();
  const at::Tensor plain = at::full({2}, 0.3, at::kDouble).requires_grad_();
  const PipelineStage stage{.name = "s",
                            .inputs = {"x"},
                            .outputs = {"y"},
                            .forward = [&](int64_t, std::vector<at::Tensor> inputs) {
                              return std::vector<at::Tensor>{Recomputed::apply(inputs[0], weight)};
                            }};
  StageRunner runner(stage);
  const at::Tensor x = at::full({2}, 0.7, at::kDouble).requires_grad_();
  const at::Tensor gradient = at::full({2}, 1.1, at::kDouble);
  static_cast<void>(runner.forward(0, {{x.detach(), true}}, true));
  const auto gradients = runner.backward(0, {gradient});
  at::tanh(x * plain).backward(gradient);
  harness::assert_same_bits(gradients[0], x.grad(), "x");
  harness::assert_same_bits(weight.grad(), plain.grad(), "weight");
}

TEST(StageRunner, GraphsEndAtTheStagesInputs) {
  const at::Tensor weight = at::full({2}, 3, at::kDouble).requires_grad_();
  const PipelineStage stage{
      .name = "s",
      .inputs = {"x", "n"},
      .outputs = {"y", "unused", "count"},
      .forward = [&](int64_t, std::vector<at::Tensor> inputs) {
        return std::vector<at::Tensor>{inputs[0] * weight, inputs[0] + 1, inputs[1] + 1};
      }};
  StageRunner runner(stage);
  const at::Tensor x = at::full({2}, 5, at::kDouble);
  auto outputs = runner.forward(4, {{x, true}, {at::ones({1}, at::kLong), false}}, true);
  EXPECT_TRUE(outputs[0].requires_grad);
  EXPECT_FALSE(outputs[0].value.requires_grad());
  EXPECT_FALSE(outputs[2].requires_grad);
  EXPECT_EQ(runner.num_live(), 1u);
  const auto gradients = runner.backward(4, {at::full({2}, 2, at::kDouble), {}, {}});
  EXPECT_EQ(runner.num_live(), 0u);
  harness::assert_same_bits(gradients[0], at::full({2}, 6, at::kDouble), "x");
  EXPECT_FALSE(gradients[1].defined());
  harness::assert_same_bits(weight.grad(), at::full({2}, 10, at::kDouble), "weight");
}

TEST(StageRunner, AnInputMayGoThroughUnchanged) {
  const PipelineStage stage{
      .name = "s",
      .inputs = {"x"},
      .outputs = {"y"},
      .forward = [](int64_t, std::vector<at::Tensor> inputs) { return inputs; }};
  StageRunner runner(stage);
  runner.forward(0, {{at::ones({2}), true}}, true);
  harness::assert_same_bits(runner.backward(0, {at::full({2}, 2.0)})[0], at::full({2}, 2.0), "x");
}

TEST(StageRunner, WithoutGradientsNothingIsComputed) {
  const PipelineStage stage{.name = "s",
                            .inputs = {"x"},
                            .outputs = {"y"},
                            .forward = [](int64_t, std::vector<at::Tensor> inputs) {
                              EXPECT_FALSE(inputs[0].requires_grad());
                              return std::vector<at::Tensor>{inputs[0] * 2};
                            }};
  StageRunner runner(stage);
  runner.forward(0, {{at::ones({2}), false}}, true);
  EXPECT_FALSE(runner.backward(0, {at::Tensor()})[0].defined());
  runner.forward(1, {{at::ones({2}), true}}, false);  // an evaluation
  EXPECT_EQ(runner.num_live(), 0u);
}

TEST(StageRunner, WrongOutputsAreRefused) {
  PipelineStage stage{.name = "s", .inputs = {"x"}, .outputs = {"y"}, .forward = {}};
  EXPECT_THROW(StageRunner{stage}, ConfigError);
  stage.forward = [](int64_t, std::vector<at::Tensor>) { return std::vector<at::Tensor>(2); };
  EXPECT_THROW(StageRunner(stage).forward(0, {{at::ones({1}), false}}, true), ConfigError);
  stage.forward = [](int64_t, std::vector<at::Tensor>) { return std::vector<at::Tensor>(1); };
  EXPECT_THROW(StageRunner(stage).forward(0, {{at::ones({1}), false}}, true), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
