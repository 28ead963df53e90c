#include <torch/nn/functional.h>

#include <gtest/gtest.h>

#include "tests/spmd/placed_cases.h"
#include "trireme/spmd/dispatch.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;
namespace F = torch::nn::functional;

const std::vector<OperatorCase>& cases() {
  static const at::Tensor labels = at::tensor({3, 0, 4, 2, 1, 3, 0}, at::kLong);
  static const at::Tensor ids = at::tensor({3, 0, 4, 2, 1, 3}, at::kLong).view({2, 3});
  using T = const Tensors&;
  static const std::vector<OperatorCase> all = {
      {"add", {{5, 3}, {5, 3}}, [](T x) { return x[0] + x[1]; }},
      {"add, repeated", {{5, 3}, {3}}, [](T x) { return x[0] + x[1]; }},
      {"add, repeated in front", {{5, 1}, {5, 4}}, [](T x) { return at::add(x[0], x[1], 2.5); }},
      {"add, number", {{5, 3}}, [](T x) { return x[0] + 2.0; }},
      {"sub", {{5, 3}, {5, 3}}, [](T x) { return x[0] - x[1]; }},
      {"mul", {{2, 5, 3}, {5, 3}}, [](T x) { return x[0] * x[1]; }},
      {"div", {{5, 3}, {5, 1}}, [](T x) { return x[0] / x[1]; }, true},
      {"pow", {{5, 3}}, [](T x) { return x[0].pow(3); }},
      {"gelu", {{5, 3}}, [](T x) { return at::gelu(x[0]); }},
      {"silu", {{5, 3}}, [](T x) { return at::silu(x[0]); }},
      {"relu", {{5, 3}}, [](T x) { return x[0].relu(); }},
      {"leaky_relu", {{5, 3}}, [](T x) { return at::leaky_relu(x[0]); }},
      {"tanh", {{5, 3}}, [](T x) { return x[0].tanh(); }},
      {"sigmoid", {{5, 3}}, [](T x) { return x[0].sigmoid(); }},
      {"softplus", {{5, 3}}, [](T x) { return at::softplus(x[0]); }},
      {"exp", {{5, 3}}, [](T x) { return x[0].exp(); }},
      {"log", {{5, 3}}, [](T x) { return x[0].log(); }, true},
      {"sqrt", {{5, 3}}, [](T x) { return x[0].sqrt(); }, true},
      {"rsqrt", {{5, 3}}, [](T x) { return x[0].rsqrt(); }, true},
      {"clamp", {{5, 3}}, [](T x) { return x[0].clamp(-0.4, 0.6); }},
      {"where", {{5, 3}, {5, 3}}, [](T x) { return at::where(x[0] > x[1], x[0], x[1] * 2); }},
      {"masked_fill", {{5, 3}}, [](T x) { return x[0].masked_fill(x[0] < 0.1, -1); }},
      {"maximum", {{5, 3}, {5, 3}}, [](T x) { return at::maximum(x[0], x[1]); }},
      {"addcmul", {{5, 3}, {5, 3}, {5, 3}}, [](T x) { return at::addcmul(x[0], x[1], x[2], 0.5); }},
      {"lerp", {{5, 3}, {5, 3}}, [](T x) { return at::lerp(x[0], x[1], 0.25); }},
      {"mm", {{5, 3}, {3, 4}}, [](T x) { return x[0].mm(x[1]); }},
      {"linear", {{2, 5, 3}, {4, 3}, {4}}, [](T x) { return at::linear(x[0], x[1], x[2]); }},
      {"addmm, bias repeated",
       {{1}, {5, 3}, {3, 4}},
       [](T x) { return at::addmm(x[0], x[1], x[2]); }},
      {"matmul", {{2, 3, 5, 4}, {4, 6}}, [](T x) { return x[0].matmul(x[1]); }},
      {"bmm", {{3, 5, 4}, {3, 4, 2}}, [](T x) { return x[0].bmm(x[1]); }},
      {"baddbmm",
       {{3, 5, 2}, {3, 5, 4}, {3, 4, 2}},
       [](T x) { return at::baddbmm(x[0], x[1], x[2]); }},
      {"mv", {{5, 3}, {3}}, [](T x) { return x[0].mv(x[1]); }},
      {"dot", {{5}, {5}}, [](T x) { return x[0].dot(x[1]); }},
      {"conv2d",
       {{3, 4, 5, 5}, {6, 4, 3, 3}, {6}},
       [](T x) { return at::conv2d(x[0], x[1], x[2], 1, 1); }},
      {"conv2d, groups",
       {{3, 4, 5, 5}, {6, 2, 3, 3}},
       [](T x) { return at::conv2d(x[0], x[1], {}, 1, 1, 1, 2); }},
      {"conv1d", {{3, 4, 7}, {5, 4, 3}, {5}}, [](T x) { return at::conv1d(x[0], x[1], x[2], 2); }},
      {"attention",
       {{3, 4, 5, 8}, {3, 4, 5, 8}, {3, 4, 5, 8}},
       [](T x) { return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true); }},
      {"sum", {{5, 3}}, [](T x) { return x[0].sum(); }},
      {"sum, dim", {{5, 3, 2}}, [](T x) { return x[0].sum({1}); }},
      {"sum, dims kept",
       {{5, 3, 2}},
       [](T x) {
         return x[0].sum(at::IntArrayRef{0, 2}, true);
       }},
      {"mean", {{5, 3}}, [](T x) { return x[0].mean(); }},
      {"mean, dim", {{5, 3}}, [](T x) { return x[0].mean(at::IntArrayRef{-1}, true); }},
      {"var", {{5, 3}}, [](T x) { return x[0].var(at::IntArrayRef{1}); }},
      {"amax", {{5, 3}}, [](T x) { return x[0].amax({0}); }},
      {"max, dim", {{5, 3}}, [](T x) { return std::get<0>(x[0].max(1)); }},
      {"norm", {{5, 3}}, [](T x) { return at::linalg_vector_norm(x[0]); }},
      {"logsumexp", {{5, 3}}, [](T x) { return x[0].logsumexp(1); }},
      {"cumsum", {{5, 3}}, [](T x) { return x[0].cumsum(0); }},
      {"softmax", {{5, 3}}, [](T x) { return x[0].softmax(-1); }},
      {"log_softmax", {{5, 3}}, [](T x) { return x[0].log_softmax(0); }},
      {"view, joined",
       {{5, 3, 2}},
       [](T x) {
         return x[0].view({15, 2});
       }},
      {"view, parted",
       {{12, 5}},
       [](T x) {
         return x[0].view({4, 3, 5}) * 2;
       }},
      {"view, with ones",
       {{5, 1, 6}},
       [](T x) {
         return x[0].view({1, 5, 2, 3});
       }},
      {"reshape of a transposed one",
       {{5, 3, 2}},
       [](T x) {
         return x[0].transpose(0, 1).reshape({3, 10});
       }},
      {"flatten", {{3, 4, 2}}, [](T x) { return x[0].flatten(1).exp(); }},
      {"permute",
       {{5, 3, 2}},
       [](T x) {
         return x[0].permute({2, 0, 1});
       }},
      {"contiguous", {{5, 3}}, [](T x) { return x[0].t().contiguous() + 1; }},
      {"unsqueeze", {{5, 3}}, [](T x) { return x[0].unsqueeze(1); }},
      {"squeeze", {{5, 1, 3}}, [](T x) { return x[0].squeeze(1); }},
      {"squeeze, all", {{5, 1, 3, 1}}, [](T x) { return x[0].squeeze(); }},
      {"expand",
       {{5, 1, 3}},
       [](T x) {
         return x[0].expand({2, 5, 4, 3});
       }},
      {"select", {{5, 3}}, [](T x) { return x[0].select(0, 2); }},
      {"slice", {{5, 3}}, [](T x) { return x[0].slice(0, 1, 4); }},
      {"chunk",
       {{4, 6}},
       [](T x) {
         const auto parts = x[0].chunk(3, 1);
         return parts[0] * parts[2] + parts[1];
       }},
      {"split",
       {{5, 6}},
       [](T x) {
         const auto parts = x[0].split({2, 4}, 1);
         return parts[1].sum(1) + parts[0].sum(1);
       }},
      {"unbind",
       {{3, 4}},
       [](T x) {
         const auto rows = x[0].unbind(0);
         return rows[0] + rows[2];
       }},
      {"cat",
       {{2, 3}, {4, 3}},
       [](T x) {
         return at::cat({x[0], x[1]});
       }},
      {"stack",
       {{2, 3}, {2, 3}},
       [](T x) {
         return at::stack({x[0], x[1]}, 1);
       }},
      {"flip", {{5, 3}}, [](T x) { return x[0].flip({0}); }},
      {"pad",
       {{5, 3}},
       [](T x) {
         return at::constant_pad_nd(x[0], {1, 2});
       }},
      {"tril", {{4, 5, 5}}, [](T x) { return x[0].tril(); }},
      {"index_select", {{5, 3}}, [](T x) { return x[0].index_select(0, labels); }},
      {"gather", {{7, 5}}, [](T x) { return x[0].gather(1, labels.unsqueeze(1)); }},
      {"layer_norm",
       {{2, 5, 6}, {6}, {6}},
       [](T x) { return at::layer_norm(x[0], {6}, x[1], x[2]); }},
      {"rms_norm", {{2, 5, 6}, {6}}, [](T x) { return at::rms_norm(x[0], {6}, x[1], 1e-5); }},
      {"embedding", {{5, 4}}, [](T x) { return at::embedding(x[0], ids); }},
      {"cross_entropy", {{7, 5}}, [](T x) { return at::cross_entropy_loss(x[0], labels); }},
      {"cross_entropy, sum",
       {{7, 5}},
       [](T x) { return at::cross_entropy_loss(x[0], labels, {}, at::Reduction::Sum); }},
      {"cross_entropy, rows",
       {{7, 5}},
       [](T x) { return at::cross_entropy_loss(x[0], labels, {}, at::Reduction::None); }},
      {"mse_loss", {{5, 3}, {5, 3}}, [](T x) { return at::mse_loss(x[0], x[1]); }},
      {"bce",
       {{5, 3}, {5, 3}},
       [](T x) { return at::binary_cross_entropy_with_logits(x[0], x[1].sigmoid()); }},
      {"max_pool2d", {{3, 4, 6, 6}}, [](T x) { return at::max_pool2d(x[0], 2); }},
      {"avg_pool2d", {{3, 4, 6, 6}}, [](T x) { return at::avg_pool2d(x[0], 3, 1, 1); }},
      {"adaptive_avg_pool2d",
       {{3, 4, 6, 6}},
       [](T x) {
         return at::adaptive_avg_pool2d(x[0], {1, 1});
       }},
      {"in place", {{5, 3}, {5, 3}}, [](T x) { return (x[0] * 2).add_(x[1]).mul_(3).relu_(); }},
      {"zeros_like",
       {{5, 3}},
       [](T x) { return at::zeros_like(x[0]) + x[0] + at::ones_like(x[0]); }},
      {"dtype", {{5, 3}}, [](T x) { return x[0].to(at::kFloat).to(at::kDouble); }},
  };
  return all;
}

class Rules : public ::testing::TestWithParam<size_t> {};

TEST_P(Rules, GiveWhatOneRankComputes) {
  const OperatorCase& each = cases()[GetParam()];
  // dtype: through fp32 the sums of partial values are rounded there.
  const double tolerance = each.name == "dtype" ? 1e-6 : 1e-10;
  expect_on_all_grids(each, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Operators, Rules, ::testing::Range<size_t>(0, cases().size()),
                         [](const auto& info) { return test_name(cases()[info.param]); });

}  // namespace
}  // namespace trireme::spmd
