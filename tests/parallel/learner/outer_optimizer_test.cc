#include "trireme/parallel/learner/outer_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

at::Tensor drawn(int64_t n, uint64_t seed) {
  return at::sin(at::arange(n, at::kDouble) * (0.3 + static_cast<double>(seed))).to(at::kFloat);
}

TEST(OuterOptimizer, PlainSgdOfRateOneIsTheMeanOfTheWeights) {
  const at::Tensor anchor = drawn(37, 1).to(at::kDouble), weights = drawn(37, 2).to(at::kDouble);
  const at::Tensor moved = anchor.clone();
  outer_step(moved, {}, anchor - weights, {});
  EXPECT_LE((moved - weights).abs().max().item<double>(), 1e-15);
}

// torch.optim.SGD, written out: buffer = momentum * buffer + g; g + momentum * buffer.
TEST(OuterOptimizer, MomentumIsThatOfTorch) {
  for (const bool nesterov : {false, true}) {
    at::Tensor anchor = drawn(11, 1).to(at::kDouble), expected = anchor.clone();
    at::Tensor momentum = at::zeros_like(anchor), buffer = at::zeros_like(anchor);
    for (uint64_t step = 0; step < 4; ++step) {
      const at::Tensor g = drawn(11, 5 + step).to(at::kDouble);
      buffer = buffer * 0.9 + g;
      expected = expected - 0.7 * (nesterov ? g + 0.9 * buffer : buffer);
      outer_step(anchor, momentum, g.clone(),
                 {.learning_rate = 0.7, .momentum = 0.9, .nesterov = nesterov});
    }
    EXPECT_LE((anchor - expected).abs().max().item<double>(), 1e-14) << nesterov;
  }
}

TEST(OuterOptimizer, ABitDoesNotDependOnWhereItsElementLies) {
  const int64_t n = 67;
  at::Tensor anchor = drawn(n, 1), momentum = drawn(n, 2), difference = drawn(n, 3);
  std::vector<at::Tensor> alone;
  const OuterOptimizerOptions options{.learning_rate = 0.7, .momentum = 0.9, .nesterov = true};
  for (int64_t i = 0; i < n; ++i) {
    const at::Tensor one = anchor.narrow(0, i, 1).clone();
    outer_step(one, momentum.narrow(0, i, 1).clone(), difference.narrow(0, i, 1).clone(), options);
    alone.push_back(one);
  }
  outer_step(anchor, momentum, difference, options);
  EXPECT_TRUE(anchor.equal(at::cat(alone)));
}

TEST(OuterOptimizer, AnOwnShareIsBetweenAnchorAndWeights) {
  const at::Tensor anchor = drawn(5, 1), weights = drawn(5, 2);
  at::Tensor mixed = weights.clone();
  mix_with_anchor(mixed, anchor, 0);
  EXPECT_TRUE(mixed.equal(anchor));
  mixed = weights.clone();
  mix_with_anchor(mixed, anchor, 0.5);
  EXPECT_TRUE(mixed.allclose((anchor + weights) / 2, 1e-6, 1e-7));
}

}  // namespace
}  // namespace trireme::parallel
