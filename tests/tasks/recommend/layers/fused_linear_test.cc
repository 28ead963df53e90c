#include "trireme/tasks/recommend/layers/mlp.h"

#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks::inline internal {
namespace {

struct Layer {
  at::Tensor x_BI, weight_OI, bias_O, grad_BO;

  Layer to(at::ScalarType dtype) const {
    const auto leaf = [&](const at::Tensor& from) {
      return from.defined() ? from.detach().to(dtype).requires_grad_() : from;
    };
    return {leaf(x_BI), leaf(weight_OI), leaf(bias_O), grad_BO.to(dtype)};
  }
  // The output and the gradients of what it is made of.
  std::vector<at::Tensor> results(const at::Tensor& out) const {
    std::vector<at::Tensor> inputs{x_BI, weight_OI};
    if (bias_O.defined()) inputs.push_back(bias_O);
    std::vector<at::Tensor> results = torch::autograd::grad({out}, inputs, {grad_BO});
    results.push_back(out.detach());
    return results;
  }
};

Layer draw(int64_t B, int64_t I, int64_t O, bool has_bias) {
  return {at::randn({B, I}), at::randn({O, I}), has_bias ? at::randn({O}) : at::Tensor(),
          at::randn({B, O})};
}

TEST(FusedLinear, IsTheLayerAndItsActivation) {
  for (const auto& [B, I, O] : {std::tuple{0, 3, 2}, {1, 1, 1}, {7, 13, 5}, {64, 33, 100}}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
      for (const bool has_bias : {false, true}) {
        const Layer fp32 = draw(B, I, O, has_bias).to(at::kFloat);
        const Layer fp64 = fp32.to(at::kDouble);
        at::Tensor out = at::linear(fp64.x_BI, fp64.weight_OI, fp64.bias_O);
        if (activation == Activation::kRelu) out = out.clamp_min(0);
        const auto expected = fp64.results(out);
        const auto exact =
            fp64.results(fused_linear(fp64.x_BI, fp64.weight_OI, fp64.bias_O, activation));
        const auto found =
            fp32.results(fused_linear(fp32.x_BI, fp32.weight_OI, fp32.bias_O, activation));
        for (size_t i = 0; i < expected.size(); ++i) {
          harness::assert_close(exact[i], expected[i], 1e-12, 1e-12, "fp64");
          // Sums of up to 100 products of a few units: 2^-24 of their sizes at each addition.
          harness::assert_close(found[i].to(at::kDouble), expected[i], 1e-5, 1e-4, "fp32");
        }
      }
    }
  }
}

TEST(FusedLinear, LeavesOutGradientsThatNobodyWants) {
  const Layer layer = draw(6, 4, 3, /*has_bias=*/true).to(at::kFloat);
  const at::Tensor x = layer.x_BI.detach();
  const at::Tensor out = fused_linear(x, layer.weight_OI, layer.bias_O, Activation::kNone);
  const auto found = torch::autograd::grad({out}, {layer.weight_OI}, {layer.grad_BO});
  harness::assert_close(found[0], at::mm(layer.grad_BO.t(), x), 1e-5, 1e-5, "weight's gradient");
  const at::Tensor constant =
      fused_linear(x, layer.weight_OI.detach(), layer.bias_O.detach(), Activation::kRelu);
  EXPECT_FALSE(constant.requires_grad());
}

TEST(FusedLinear, TakesViewsAndKeepsNans) {
  const Layer layer = draw(6, 4, 3, /*has_bias=*/true).to(at::kFloat);
  const at::Tensor wide = at::randn({6, 9});
  wide[2][5] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor x = wide.narrow(1, 3, 4);
  const at::Tensor out = fused_linear(x, layer.weight_OI, layer.bias_O, Activation::kRelu);
  EXPECT_TRUE(out[2].isnan().all().item<bool>());
  const at::Tensor expected = at::relu(at::linear(x, layer.weight_OI, layer.bias_O)).detach();
  harness::assert_close(out.detach().nan_to_num(), expected.nan_to_num(), 1e-5, 1e-5, "output");
  // The gradient of a sum is a view of one number.
  const auto found = torch::autograd::grad(
      {fused_linear(layer.x_BI, layer.weight_OI, layer.bias_O, Activation::kNone).sum()},
      {layer.x_BI});
  harness::assert_close(found[0], layer.weight_OI.detach().sum(0).expand({6, 4}), 1e-5, 1e-5,
                        "gradient");
}

TEST(FusedLinear, HasTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const Layer layer = draw(150, 70, 90, /*has_bias=*/true).to(at::kFloat);
  const auto run = [&](int count) {
    at::set_num_threads(count);
    return layer.results(
        fused_linear(layer.x_BI, layer.weight_OI, layer.bias_O, Activation::kRelu));
  };
  const auto expected = run(1), found = run(2);
  for (size_t i = 0; i < expected.size(); ++i) {
    harness::assert_same_bits(found[i], expected[i], "of threads");
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace trireme::tasks::inline internal
