#include "trireme/train/callbacks/watched_metric.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(WatchedMetric, TheFirstValueIsTheBestUntilABetterOne) {
  BestValue loss;
  EXPECT_FALSE(loss.is_set());
  EXPECT_TRUE(loss.improve(3, Goal::kSmallest));
  EXPECT_FALSE(loss.improve(3, Goal::kSmallest));
  EXPECT_FALSE(loss.improve(4, Goal::kSmallest));
  EXPECT_TRUE(loss.improve(2, Goal::kSmallest));
  EXPECT_EQ(loss.value(), 2);
  BestValue accuracy;
  EXPECT_TRUE(accuracy.improve(0.5, Goal::kLargest));
  EXPECT_FALSE(accuracy.improve(0.4, Goal::kLargest));
  EXPECT_TRUE(accuracy.improve(0.6, Goal::kLargest));
}

TEST(WatchedMetric, SmallChangesAndNanDoNotCount) {
  BestValue best;
  EXPECT_FALSE(best.improve(std::nan(""), Goal::kSmallest));
  EXPECT_TRUE(best.improve(3, Goal::kSmallest, 0.5));
  EXPECT_FALSE(best.improve(2.5, Goal::kSmallest, 0.5));
  EXPECT_TRUE(best.improve(2.4, Goal::kSmallest, 0.5));
  EXPECT_FALSE(best.improve(std::nan(""), Goal::kSmallest, 0.5));
  EXPECT_EQ(best.value(), 2.4);
}

TEST(WatchedMetric, UnknownNamesAreRefusedWithTheNearest) {
  const std::vector<std::string> names = {"validation_loss", "validation_accuracy"};
  check_watched("early_stop.metric", "validation_loss", names);
  EXPECT_EQ(harness::message_of<ConfigError>(
                [&] { check_watched("early_stop.metric", "validation_acuracy", names); }),
            "early_stop.metric is \"validation_acuracy\", which evaluations do not have; did you "
            "mean \"validation_accuracy\"?");
  EXPECT_EQ(harness::message_of<ConfigError>([&] { check_watched("checkpoint.best", "loss", {}); }),
            "checkpoint.best is \"loss\", but this run does not evaluate; set "
            "train.evaluate_interval");
}

}  // namespace
}  // namespace trireme::train
