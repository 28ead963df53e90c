#include "trireme/model/layers/feed_forward.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"

namespace trireme::model {
namespace {

using namespace harness;

at::Tensor composed_swiglu(const Tensors& in) { return at::silu(in[0]) * in[1]; }

TEST(Swiglu, EqualsSiluTimesUp) {
  for (const int64_t width : {1, 31, 64, 1000}) {
    assert_same_function([](const Tensors& in) { return swiglu(in[0], in[1]); }, composed_swiglu,
                         {values({3, width}, 0.37, 12), values({3, width}, 0.53, 3)}, 1e-14);
  }
}

TEST(Swiglu, Fp32StaysWithinRounding) {
  const Tensors in = {values({999}, 0.37, 90, at::kFloat), values({999}, 0.53, 3, at::kFloat)};
  const auto f = [](const Tensors& t) { return swiglu(t[0], t[1]); };
  const Tensors fp32 = value_and_gradients(f, in);
  const Tensors fp64 =
      value_and_gradients(composed_swiglu, {in[0].to(at::kDouble), in[1].to(at::kDouble)});
  // About eight operations and an exponential within 2 ULP.
  for (size_t i = 0; i < 3; ++i) harness::assert_close(fp32[i], fp64[i], 0x1p-20, 0, "fp32");
}

TEST(Swiglu, NarrowNumbersAreComputedInFp32AndRoundedOnce) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t width : {1, 31, 64, 1000}) {
      const at::Tensor gate = values({3, width}, 0.37, 12, dtype);
      const at::Tensor up = values({3, width}, 0.53, 3, dtype);
      const at::Tensor grad = values({3, width}, 0.71, 2, dtype);
      const auto run = [&](at::ScalarType computed) {
        const auto leaf = [&](const at::Tensor& x) {
          return x.to(computed, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
        };
        const Tensors leaves = {leaf(gate), leaf(up)};
        const at::Tensor y = swiglu(leaves[0] * 1, leaves[1] * 1);
        Tensors result = torch::autograd::grad({y}, leaves, {grad.to(computed)});
        result.push_back(y.detach());
        return result;
      };
      const Tensors narrow = run(dtype), fp32 = run(at::kFloat);
      for (size_t i = 0; i < narrow.size(); ++i) {
        assert_same_bits(narrow[i], fp32[i].to(dtype), std::to_string(i));
      }
    }
  }
}

TEST(Swiglu, BackwardTwiceThrows) {
  const at::Tensor gate = values({4}, 0.3).requires_grad_();
  const at::Tensor y = swiglu(gate * 1, gate * 2).sum();
  torch::autograd::grad({y}, {gate}, {}, /*retain_graph=*/true);
  EXPECT_ANY_THROW(torch::autograd::grad({y}, {gate}));
}

// Numbers on both sides of the limit, and in reach of each other.
TEST(ClampedSwiglu, EqualsItsOperatorsAndTheirGradients) {
  const double limit = 2.5, alpha = 1.702;
  const auto composed = [&](const Tensors& in) {
    const at::Tensor gate = in[0].clamp_max(limit), up = in[1].clamp(-limit, limit);
    return (up + 1) * (gate * at::sigmoid(gate * alpha));
  };
  for (const int64_t width : {1, 31, 1000}) {
    assert_same_function(
        [&](const Tensors& in) { return clamped_swiglu(in[0], in[1], limit, alpha); }, composed,
        {values({3, width}, 0.37, 5), values({3, width}, 0.53, 5)}, 1e-14);
  }
}

// Which rows an expert has, and where they lie, depends on the layout.
TEST(ClampedSwiglu, ARowHasTheSameBitsWhereverItLies) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto run = [](const Tensors& in) {
      const Tensors leaves = {in[0].clone().requires_grad_(), in[1].clone().requires_grad_()};
      const at::Tensor y = clamped_swiglu(leaves[0] * 1, leaves[1] * 1, 2.5, 1.702);
      Tensors result = torch::autograd::grad({y}, leaves, {in[2]});
      result.push_back(y.detach());
      return result;
    };
    const Tensors in = {values({7, 13}, 0.37, 5, dtype), values({7, 13}, 0.53, 5, dtype),
                        values({7, 13}, 0.71, 2, dtype)};
    const Tensors whole = run(in);
    for (int64_t row = 0; row < 7; ++row) {
      const auto of = [row](const at::Tensor& tensor) { return tensor.narrow(0, row, 1); };
      const Tensors alone = run({of(in[0]), of(in[1]), of(in[2])});
      for (size_t i = 0; i < alone.size(); ++i) {
        assert_same_bits(alone[i], of(whole[i]), std::to_string(row));
      }
    }
  }
}

at::Tensor gelu_by_tanh(const at::Tensor& x) {
  const double root = std::sqrt(2 / std::numbers::pi);
  return 0.5 * x * (1 + at::tanh(root * (x + 0.044715 * x * x * x)));
}

TEST(FeedForward, IsDownOfActivatedGateTimesUpPlusResidual) {
  for (const Gate function : {Gate::kSilu, Gate::kGeluTanh}) {
    FeedForward module(/*width=*/6, /*rows=*/10, {}, at::kDouble, function);
    const at::Tensor gate = values({10, 6}, 0.3);
    const at::Tensor up = values({10, 6}, 0.5);
    const at::Tensor down = values({6, 10}, 0.7);
    const at::NoGradGuard no_grad;
    module.gate_proj->weight.copy_(gate);
    module.up_proj->weight.copy_(up);
    module.down_proj->weight.copy_(down);
    const at::Tensor x = values({2, 3, 6}, 0.37);
    const at::Tensor inner = at::linear(x, gate);
    const at::Tensor active = function == Gate::kSilu ? at::silu(inner) : gelu_by_tanh(inner);
    const at::Tensor expected = at::linear(active * at::linear(x, up), down);
    const TokenBatch batch{.B = x.size(0), .T = x.size(1)};
    harness::assert_close(module.forward(x, x * 2, batch), x * 2 + expected, 1e-14, 1e-15, "sum");
    harness::assert_close(module.forward(x, {}, batch), expected, 1e-14, 1e-15, "branch alone");
  }
}

TEST(GeluFeedForward, IsExactOrUsesTheTanhApproximation) {
  const ModelConfig config{.width = 1, .ffn_width = 1};
  const double x = 1.5;
  const at::Tensor in = at::full({1, 1, 1}, x, at::kDouble);
  const auto of = [&](const GeluOptions& options) {
    GeluFeedForward module(config, {}, at::kDouble, options);
    const at::NoGradGuard no_grad;
    module.up_proj->weight.fill_(1);
    module.down_proj->weight.fill_(1);
    module.down_proj->bias.fill_(0.5);
    return module.forward(in, at::zeros_like(in), {}).item<double>();
  };
  const double inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  EXPECT_NEAR(of({}), 0.5 * x * (1 + std::tanh(inner)) + 0.5, 1e-14);
  const double exact = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))) + 0.5;
  EXPECT_NEAR(of({.approximation = "none"}), exact, 1e-14);
  EXPECT_GT(std::abs(of({}) - exact), 1e-6);
}

}  // namespace
}  // namespace trireme::model
