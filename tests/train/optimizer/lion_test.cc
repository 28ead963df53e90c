#include "trireme/train/optimizer/update_rules.h"

#include <gtest/gtest.h>

#include "tests/train/optimizer/runs.h"

namespace trireme::train {
namespace {

const OptimizerConfig kLion{.name = "lion", .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.99};

// Every step is the rate times a sign, and averages of gradients of one sign are far from zero.
TEST(LionRule, AgreesWithThePapersAlgorithm) {
  compare_with_reference(kLion, {.size = 1, .roundings = 2});
}

TEST(LionRule, PiecesHaveTheBitsOfTheWhole) { expect_same_bits_in_pieces(kLion); }

}  // namespace
}  // namespace trireme::train
