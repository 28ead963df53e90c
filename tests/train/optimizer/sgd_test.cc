#include "trireme/train/optimizer/update_rules.h"

#include <gtest/gtest.h>

#include "tests/train/optimizer/runs.h"

namespace trireme::train {
namespace {

OptimizerConfig config_of(double momentum, bool nesterov) {
  return {.name = "sgd", .learning_rate = 1e-2, .momentum = momentum, .nesterov = nesterov};
}

// Gradients and decay of at most 1.7 pile up over six steps and one ahead; four roundings a step.
constexpr StepError kError{.size = 12, .roundings = 28};

TEST(SgdRule, AgreesWithTorchWithNesterovMomentum) {
  compare_with_reference(config_of(0.9, true), kError);
}

TEST(SgdRule, AgreesWithTorchWithPolyakMomentum) {
  compare_with_reference(config_of(0.9, false), kError);
}

TEST(SgdRule, AgreesWithTorchWithoutMomentum) {
  compare_with_reference(config_of(0, true), kError);
}

TEST(SgdRule, PiecesHaveTheBitsOfTheWhole) {
  for (const bool nesterov : {false, true}) expect_same_bits_in_pieces(config_of(0.9, nesterov));
  expect_same_bits_in_pieces(config_of(0, false));
}

TEST(SgdRule, KeepsNothingWithoutMomentum) {
  const parallel::Shard shard = make_shards(at::kFloat)[0];
  EXPECT_EQ(SgdRule(0, true).state_of(shard).size(), 0u);
  EXPECT_EQ(SgdRule(0.9, true).state_of(shard).size(), 1u);
}

}  // namespace
}  // namespace trireme::train
