#include "trireme/train/numerics/learning_rate.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

double scaled(BatchScaling scaling, int64_t batch) {
  return scaled_learning_rate(0.25, scaling, batch, /*base_batch=*/64);
}

TEST(BatchScaling, FollowsTheBatchItsRootOrNothing) {
  EXPECT_EQ(scaled(BatchScaling::kNone, 256), 0.25);
  EXPECT_EQ(scaled(BatchScaling::kLinear, 256), 1.0);
  EXPECT_EQ(scaled(BatchScaling::kLinear, 32), 0.125);
  EXPECT_EQ(scaled(BatchScaling::kSquareRoot, 256), 0.5);
  EXPECT_EQ(scaled(BatchScaling::kSquareRoot, 16), 0.125);
}

TEST(BatchScaling, AtTheBaseBatchNothingChanges) {
  for (const auto& [name, scaling] : kBatchScalings) EXPECT_EQ(scaled(scaling, 64), 0.25) << name;
}

}  // namespace
}  // namespace trireme::train
