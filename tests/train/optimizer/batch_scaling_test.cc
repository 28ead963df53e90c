#include "trireme/train/optimizer/batch_scaling.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

double scaled(const std::string& batch_scaling, int64_t global_batch) {
  return peak_learning_rate(
      {.learning_rate = 0.25, .batch_scaling = batch_scaling, .base_batch = 64}, global_batch);
}

TEST(BatchScaling, FollowsTheBatchItsRootOrNothing) {
  EXPECT_EQ(scaled("none", 256), 0.25);
  EXPECT_EQ(scaled("linear", 256), 1.0);
  EXPECT_EQ(scaled("linear", 32), 0.125);
  EXPECT_EQ(scaled("square-root", 256), 0.5);
  EXPECT_EQ(scaled("square-root", 16), 0.125);
}

TEST(BatchScaling, AtTheBaseBatchNothingChanges) {
  for (const char* scaling : {"none", "linear", "square-root"})
    EXPECT_EQ(scaled(scaling, 64), 0.25);
}

}  // namespace
}  // namespace trireme::train
