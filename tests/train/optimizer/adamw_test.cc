#include "trireme/train/optimizer/update_rules.h"

#include <gtest/gtest.h>

#include "tests/train/optimizer/runs.h"

namespace trireme::train {
namespace {

const OptimizerConfig kAdamW{.name = "adamw", .learning_rate = 1e-2};

// With gradients from 0.5 to 1.5 the quotient of the moments is at most 3. Roundings: three a step
// of the first moment, half of four of the second, and eight of the quotient.
TEST(AdamWRule, AgreesWithTorch) { compare_with_reference(kAdamW, {.size = 3, .roundings = 40}); }

TEST(AdamWRule, PiecesHaveTheBitsOfTheWhole) { expect_same_bits_in_pieces(kAdamW); }

TEST(AdamWRule, WorksOnPartsOfParameters) {
  EXPECT_FALSE(AdamWRule(0.9, 0.95, 1e-8).needs_whole_parameters());
}

}  // namespace
}  // namespace trireme::train
