#include "trireme/parallel/tensor/linear_cross_entropy.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kRows = 9, kVocab = 23;

at::Tensor some_logits(double scale) { return values({kRows, kVocab}, 0.37, scale); }

at::Tensor some_targets(bool ignores) {
  const at::Tensor targets = at::arange(kRows, at::kLong).mul(5).remainder(kVocab);
  if (ignores) targets.narrow(0, 2, 3).fill_(kIgnoredTarget);
  return targets;
}

// Loss and gradient by libtorch's cross-entropy.
Tensors plain(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor leaf = logits.clone().requires_grad_();
  const at::Tensor loss =
      at::cross_entropy_loss(leaf, targets, {}, at::Reduction::Sum, kIgnoredTarget);
  return {loss.detach(), torch::autograd::grad({loss}, {leaf})[0]};
}

TEST(LogitRows, LossAndGradientAreThoseOfCrossEntropyOnEveryRank) {
  for (const bool ignores : {false, true}) {
    const at::Tensor logits = some_logits(3), targets = some_targets(ignores);
    const Tensors expected = plain(logits, targets);
    for (const int ranks : {1, 2, 3, 4, 5}) {
      run_ranks(ranks, [&](comm::Communicator& group) {
        const TensorAxis axis{.group = &group};
        const RowsLoss loss =
            loss_of_rows({.logits_Cv = part_of(logits, 1, axis),
                          .targets_C = targets,
                          .first_row = mesh::split_range(kVocab, ranks, group.rank()).offset,
                          .has_ignored = ignores},
                         axis, at::kDouble);
        assert_close(loss.sum, expected[0], 1e-13, 0, "loss");
        assert_close(loss.gradient_Cv, part_of(expected[1], 1, axis), 1e-13, 1e-13, "gradient");
      });
    }
  }
}

TEST(LogitRows, TheGradientIsRoundedOnceToItsType) {
  const at::Tensor logits = some_logits(20), targets = some_targets(false);
  const at::Tensor expected = plain(logits, targets)[1];
  const RowsLoss loss =
      loss_of_rows({.logits_Cv = logits, .targets_C = targets}, TensorAxis{}, at::kBFloat16);
  EXPECT_EQ(loss.gradient_Cv.scalar_type(), at::kBFloat16);
  // Half of a unit of the last of 8 bits. Near the target, 1 - softmax has no less.
  assert_close(loss.gradient_Cv.to(at::kDouble), expected, 0, 0x1p-9, "gradient");
}

TEST(LogitRows, ARowThatIsSureOfItsTargetKeepsItsGradient) {
  const at::Tensor logits = at::tensor({0.0, 10.0}).view({1, 2});
  const RowsLoss loss = loss_of_rows({.logits_Cv = logits, .targets_C = at::ones({1}, at::kLong)},
                                     TensorAxis{}, at::kBFloat16);
  // 1 - softmax is far below the last of the 8 bits of 1.
  const double expected = -1 / (1 + std::exp(10.0));
  EXPECT_NEAR(loss.gradient_Cv[0][1].item<double>(), expected, -expected * 0x1p-8);
}

TEST(LogitRows, WithoutAGradientThereIsOnlyTheLoss) {
  const at::Tensor logits = some_logits(3), targets = some_targets(true);
  const RowsLoss loss =
      loss_of_rows({.logits_Cv = logits, .targets_C = targets}, TensorAxis{}, std::nullopt);
  assert_close(loss.sum, plain(logits, targets)[0], 1e-13, 0, "loss");
  EXPECT_FALSE(loss.gradient_Cv.defined());
}

TEST(LogitRows, StatisticsOfAllRanksAreInRankOrder) {
  run_ranks(3, [](comm::Communicator& group) {
    const at::Tensor mine = at::full({2, kNumStats}, group.rank(), at::kDouble);
    const at::Tensor all = gather_stats(mine, {.group = &group});
    assert_same_bits(
        all, at::arange(3, at::kDouble).view({3, 1, 1}).expand({3, 2, kNumStats}).contiguous(),
        "all");
  });
}

}  // namespace
}  // namespace trireme::parallel
