#include "trireme/train/optimizer/update_rules.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/train/optimizer/runs.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

const OptimizerConfig kLars{.name = "lars", .learning_rate = 10};

// Steps of at most 0.001 * 1 / 0.5 * 1.7 pile up over six; six roundings each.
TEST(LarsRule, AgreesWithThePapersAlgorithm) {
  compare_with_reference(kLars, {.size = 0.021, .roundings = 40});
}

TEST(LarsRule, WeightsThatAreZeroMoveByThePlainGradient) {
  std::vector<parallel::Shard> shards = {
      {.name = "bias", .weights = at::zeros({3}), .layout = mesh::Layout({3}, {})}};
  shards[0].gradient = at::full({3}, 2.0);
  Optimizer(shards, kLars).step(0.5);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(shards[0].weights[i].item<double>(), -1.0);
}

}  // namespace
}  // namespace trireme::train
