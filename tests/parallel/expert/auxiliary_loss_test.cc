#include "trireme/parallel/expert/routing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"

namespace trireme::parallel {
namespace {

using namespace harness;

TEST(WithLoss, AddsTheTermsGradientToThatOfTheLoss) {
  const at::Tensor x = values({3, 4}, 0.3);
  const auto term = [](const at::Tensor& t) { return t.square().sum(); };
  assert_same_function(
      [&](const Tensors& t) { return with_loss(t[0] * 2, term(t[0]), 0.25).sum(); },
      [&](const Tensors& t) {
        // The same gradient: the weight of the value in the harness is sin(0.9).
        const at::Tensor sum = term(t[0]) * (0.25 / std::sin(0.9));
        return (t[0] * 2).sum() + sum - sum.detach();
      },
      {x}, 1e-14);
}

// Token by token, as the papers write it.
TEST(BalanceLoss, IsTheSumOverSequencesOfTheirFormula) {
  const int64_t B = 3, T = 7, E = 5, k = 2;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const at::Tensor logits = values({B * T, E}, 1.3, 2);
    const Routing routing = route(logits, {}, {.experts_per_token = k, .score = score});
    const at::Tensor tokens_BE = tokens_of_experts(routing.experts_SK, B, E, at::kDouble);
    double expected = 0;
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t e = 0; e < E; ++e) {
        double tokens = 0, share = 0;
        for (int64_t t = b * T; t < (b + 1) * T; ++t) {
          tokens += routing.experts_SK[t].eq(e).sum().item<double>();
          share += (routing.scores_SE[t][e] / routing.scores_SE[t].sum()).item<double>() / T;
        }
        ASSERT_EQ(tokens_BE[b][e].item<double>(), tokens);
        expected += E * tokens / (k * T) * share;
      }
    }
    const at::Tensor loss = balance_loss(routing.scores_SE.view({B, T, E}), tokens_BE, T, k);
    ASSERT_NEAR(loss.item<double>(), expected, 1e-13);
  }
}

// Megatron-LM#1545: added to the sum, 1e-20 let a sigmoid router lower the loss by tiny scores.
TEST(BalanceLoss, TinyScoresDoNotLowerIt) {
  const at::Tensor scores = values({2, 9, 4}, 0.7).exp(), tokens = values({2, 4}, 1.9, 5).abs();
  const double expected = balance_loss(scores, tokens, 9, 2).item<double>();
  ASSERT_NEAR(balance_loss(scores * 1e-30, tokens, 9, 2).item<double>(), expected, 1e-12);
  ASSERT_EQ(balance_loss(scores * 0, tokens, 9, 2).item<double>(), 0);
}

TEST(BalanceLoss, IsOneForASequenceThatIsSpreadEvenly) {
  const at::Tensor scores = at::full({1, 4, 4}, 0.25, at::kDouble);
  const at::Tensor tokens = at::full({1, 4}, 2, at::kDouble);
  ASSERT_DOUBLE_EQ(balance_loss(scores, tokens, 4, 2).item<double>(), 1);
}

// Parts of sequences on several ranks, with the counts of the whole ones.
TEST(BalanceLoss, OfPartsAddsUpToThatOfTheWhole) {
  const at::Tensor scores = values({2, 9, 4}, 0.7).exp(), tokens = values({2, 4}, 1.9, 5).abs();
  const at::Tensor whole = balance_loss(scores, tokens, 9, 2);
  const at::Tensor parts = balance_loss(scores.narrow(1, 0, 4), tokens, 9, 2) +
                           balance_loss(scores.narrow(1, 4, 5), tokens, 9, 2);
  assert_close(parts, whole, 1e-14, 0, "sum of parts");
}

TEST(TokensOfExperts, NoTokens) {
  const at::Tensor none = at::empty({0, 2}, at::kLong);
  assert_same_bits(tokens_of_experts(none, 0, 4, at::kFloat), at::zeros({0, 4}), "counts");
}

TEST(RouterZLoss, IsTheSquareOfTheLogarithm) {
  const at::Tensor logits = values({6, 5}, 1.3, 2);
  assert_close(router_z_loss(logits), logits.exp().sum(1).log().square().sum(), 1e-14, 0, "z");
}

}  // namespace
}  // namespace trireme::parallel
