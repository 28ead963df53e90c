#include "trireme/train/optimizer/update_rules.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/train/optimizer/runs.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

const OptimizerConfig kLamb{.name = "lamb", .learning_rate = 1e-2};

// With gradients from 0.5 to 1.5 an element of the Adam step is from 1/3 to 3, that of the decay at
// most 0.2: after scaling to weights of at most 1 none passes 3.2 / 0.13. Roundings: AdamW's 40,
// once in the step (whose sum with the decay may more than double them) and once in its norm.
TEST(LambRule, AgreesWithThePapersAlgorithm) {
  compare_with_reference(kLamb, {.size = 25, .roundings = 140});
}

TEST(LambRule, WeightsThatAreZeroMoveByThePlainStep) {
  std::vector<parallel::Shard> shards = {
      {.name = "bias", .weights = at::zeros({3}), .layout = mesh::Layout({3}, {})}};
  shards[0].gradient = at::ones({3});
  Optimizer(shards, kLamb).step(0.5);
  // The first Adam step is g / |g| = 1, but for epsilon and four roundings.
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(shards[0].weights[i].item<double>(), -0.5, 3e-7);
}

}  // namespace
}  // namespace trireme::train
