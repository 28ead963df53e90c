#include "trireme/parallel/expert/routing.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/gradients.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// A stable sort is the definition. Values from a small set, so that most rows have ties.
TEST(LargestIndices, AreThoseOfAStableSort) {
  Draw draw(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t S = draw.below<int64_t>(9), E = 1 + draw.below<int64_t>(20);
    const int64_t k = 1 + draw.below(E);
    at::Tensor x = at::empty({S, E}, round % 2 == 0 ? at::kFloat : at::kDouble);
    for (int64_t i = 0; i < S * E; ++i) x.view({-1})[i] = static_cast<double>(draw.below(4)) - 1;
    if (round % 5 == 0 && S > 0) {
      x[0][draw.below(E)] = std::numeric_limits<double>::quiet_NaN();
      x[0][draw.below(E)] = -std::numeric_limits<double>::infinity();
    }
    const at::Tensor sorted = std::get<1>(at::sort(x, /*stable=*/true, 1, /*descending=*/true));
    assert_same_bits(largest_indices(x, k), sorted.narrow(1, 0, k).contiguous(), "indices");
  }
}

TEST(LargestIndices, OfColumnsInMemory) {
  const at::Tensor x = values({7, 5}, 0.9).t();
  assert_same_bits(largest_indices(x, 2), largest_indices(x.contiguous(), 2), "indices");
}

TEST(Route, MixtralIsASoftmaxOverTheChosen) {
  const at::Tensor logits = values({6, 5}, 1.7, 3);
  const Routing routing = route(logits, {}, {.experts_per_token = 2});
  assert_close(routing.weights_SK, logits.gather(1, routing.experts_SK).softmax(-1), 1e-15, 1e-15,
               "weights");
}

TEST(Route, SwitchKeepsTheProbabilityOfItsOneExpert) {
  const at::Tensor logits = values({6, 5}, 1.7, 3);
  const Routing routing = route(logits, {}, {.experts_per_token = 1, .normalise = false});
  const auto [probability, expert] = logits.softmax(-1).max(1, /*keepdim=*/true);
  assert_same_bits(routing.experts_SK, expert, "experts");
  assert_same_bits(routing.weights_SK, probability, "weights");
}

// The formulas of DeepSeek-V3, token by token.
TEST(Route, DeepSeekLimitsGroupsAndChoosesWithABias) {
  const int64_t S = 40, E = 12, G = 4, g = 2, k = 3;
  const at::Tensor logits = values({S, E}, 1.3, 2), bias = values({E}, 2.1, 0.5);
  const Routing routing = route(logits, bias,
                                {.experts_per_token = k,
                                 .score = RouterScore::kSigmoid,
                                 .scale = 2.5,
                                 .groups = G,
                                 .groups_per_token = g});
  for (int64_t s = 0; s < S; ++s) {
    std::vector<double> score, choice;
    for (int64_t e = 0; e < E; ++e) {
      score.push_back(1 / (1 + std::exp(-logits[s][e].item<double>())));
      choice.push_back(score.back() + bias[e].item<double>());
    }
    std::vector<std::pair<double, int64_t>> groups;  // negated, so that sort() puts the best first
    for (int64_t group = 0; group < G; ++group) {
      std::vector<double> in(choice.begin() + group * E / G, choice.begin() + (group + 1) * E / G);
      std::ranges::sort(in, std::greater());
      groups.emplace_back(-in[0] - in[1], group);
    }
    std::ranges::sort(groups);
    std::vector<std::pair<double, int64_t>> experts;
    for (int64_t i = 0; i < g; ++i) {
      const int64_t group = groups[static_cast<size_t>(i)].second;
      for (int64_t e = group * E / G; e < (group + 1) * E / G; ++e)
        experts.emplace_back(-choice[static_cast<size_t>(e)], e);
    }
    std::ranges::sort(experts);
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
      sum += score[static_cast<size_t>(experts[static_cast<size_t>(j)].second)];
    for (int64_t j = 0; j < k; ++j) {
      const int64_t expert = experts[static_cast<size_t>(j)].second;
      ASSERT_EQ(routing.experts_SK[s][j].item<int64_t>(), expert) << "token " << s;
      ASSERT_NEAR(routing.weights_SK[s][j].item<double>(),
                  2.5 * score[static_cast<size_t>(expert)] / sum, 1e-14);
    }
  }
}

TEST(Route, ABiasChangesTheChoiceAndNoWeight) {
  const at::Tensor logits = at::tensor({2.0, 1.0, 0.0}).view({1, 3});
  const RouterOptions options{.experts_per_token = 1, .normalise = false};
  const Routing routing = route(logits, at::tensor({0.0, 0.0, 1.0}), options);
  ASSERT_EQ(routing.experts_SK.item<int64_t>(), 2);
  assert_same_bits(routing.weights_SK, logits.softmax(-1).narrow(1, 2, 1), "weight");
}

// By differences of the sum that the weights make.
TEST(Route, WeightsHaveTheGradientOfTheirFormula) {
  const at::Tensor logits = values({4, 6}, 1.1, 2);
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalise : {false, true}) {
      const RouterOptions options{
          .experts_per_token = 2, .score = score, .normalise = normalise, .scale = 1.5};
      const at::Tensor factor = values({4, 2}, 0.7);
      const auto sum = [&](const at::Tensor& x) {
        return (route(x, {}, options).weights_SK * factor).sum();
      };
      const at::Tensor leaf = logits.clone().requires_grad_();
      const at::Tensor grad = torch::autograd::grad({sum(leaf)}, {leaf})[0];
      constexpr double kStep = 1e-6;  // error of the difference: step^2 and 1e-16 / step
      for (int64_t i = 0; i < logits.numel(); ++i) {
        at::Tensor up = logits.clone(), down = logits.clone();
        up.view({-1})[i] += kStep;
        down.view({-1})[i] -= kStep;
        ASSERT_NEAR(grad.view({-1})[i].item<double>(),
                    (sum(up) - sum(down)).item<double>() / (2 * kStep), 1e-8);
      }
    }
  }
}

TEST(Route, KeepsExpertsThatWereChosenBefore) {
  const at::Tensor logits = values({4, 6}, 1.1, 2), chosen = at::tensor({5, 0}).expand({4, 2});
  const Routing routing = route(logits, {}, {.normalise = false}, chosen);
  assert_same_bits(routing.experts_SK, chosen, "experts");
  assert_same_bits(routing.weights_SK, logits.softmax(-1).gather(1, chosen), "weights");
}

TEST(Route, NoTokens) {
  const Routing routing = route(at::empty({0, 4}, at::kFloat), {}, {});
  ASSERT_EQ(routing.experts_SK.sizes(), (std::vector<int64_t>{0, 2}));
  ASSERT_EQ(routing.weights_SK.sizes(), (std::vector<int64_t>{0, 2}));
}

}  // namespace
}  // namespace trireme::parallel
