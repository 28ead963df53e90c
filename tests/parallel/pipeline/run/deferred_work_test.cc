#include "trireme/parallel/pipeline/run/executor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

at::Tensor leaf() { return at::zeros({2}, at::kFloat).requires_grad_(); }
GradientFunction gives(double value) {
  return [value] { return at::full({2}, value, at::kFloat); };
}

struct CountingHook : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int& calls) : calls(calls) {}
  void operator()(const torch::autograd::Variable& tensor) override {
    EXPECT_TRUE(tensor.grad().defined());
    ++calls;
  }
  int& calls;
};

TEST(DeferredWork, TakesNothingOutsideAnInputPart) {
  DeferredWork deferred;
  EXPECT_FALSE(deferred.defer(leaf(), gives(1)));
  deferred.begin({0, 0});
  EXPECT_TRUE(deferred.defer(leaf(), gives(1)));
  deferred.end();
  EXPECT_FALSE(deferred.defer(leaf(), gives(1)));
  EXPECT_FALSE(deferred.empty());
  deferred.clear();
  EXPECT_TRUE(deferred.empty());
}

TEST(DeferredWork, RunsWhatBelongsToAStageAndMicrobatch) {
  DeferredWork deferred;
  const at::Tensor first = leaf(), second = leaf();
  deferred.begin({0, 0});
  deferred.defer(first, gives(1));
  deferred.end();
  deferred.begin({0, 1});
  deferred.defer(second, gives(2));
  deferred.end();
  deferred.run({0, 1});
  EXPECT_FALSE(first.grad().defined());
  EXPECT_EQ(second.grad()[0].item<double>(), 2);
  deferred.run({0, 0});
  EXPECT_EQ(first.grad()[0].item<double>(), 1);
  EXPECT_TRUE(deferred.empty());
  deferred.run({3, 3});  // nothing was deferred: nothing happens
}

// As autograd does: 1e8 + (-1e8 + 1) is 0 in fp32, (1e8 - 1e8) + 1 is 1.
TEST(DeferredWork, SumsTheUsesOfALeafBeforeItAddsThem) {
  const at::Tensor weight = leaf();
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<CountingHook>(calls));
  accumulate_gradient(weight, gives(1e8)());
  EXPECT_EQ(calls, 1);
  DeferredWork deferred;
  deferred.begin({0, 0});
  deferred.defer(weight, gives(-1e8));
  deferred.defer(weight, gives(1));
  deferred.end();
  deferred.run({0, 0});
  EXPECT_EQ(calls, 2);
  harness::assert_same_bits(weight.grad(), at::zeros({2}, at::kFloat), "sum");
}

}  // namespace
}  // namespace trireme::parallel
