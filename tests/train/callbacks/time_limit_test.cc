#include "trireme/train/callbacks/time_limit.h"

#include <gtest/gtest.h>

#include "tests/train/callbacks/fake_run.h"

namespace trireme::train {
namespace {

using std::chrono::seconds;

TimeLimit::Clock::time_point now;

class TimeLimitTest : public ::testing::Test {
 protected:
  TimeLimitTest() : callback_([] { return now; }) {
    now = {};
    set_keys(callback_, {{"train.time_limit_seconds", 100}});
    callback_.on_start(run_);
  }

  bool stops_after(seconds step) {
    now += step;
    callback_.on_step(run_);
    return !run_.stop_reason_.empty();
  }

  FakeRun run_;
  TimeLimit callback_;
};

TEST_F(TimeLimitTest, StopsBeforeAStepThatWouldNotFit) {
  EXPECT_FALSE(stops_after(seconds(20)));
  EXPECT_FALSE(stops_after(seconds(30)));
  EXPECT_FALSE(stops_after(seconds(19)));  // 69 + 30 < 100
  EXPECT_TRUE(stops_after(seconds(1)));
  EXPECT_FALSE(run_.for_good_);
}

TEST_F(TimeLimitTest, LeavesTimeForACheckpoint) {
  EXPECT_FALSE(stops_after(seconds(10)));
  now += seconds(40);
  callback_.on_checkpoint(run_, {});
  EXPECT_TRUE(stops_after(seconds(10)));  // 60 + 10 + 40 = 110
}

TEST_F(TimeLimitTest, IsOffWithoutALimit) { EXPECT_FALSE(TimeLimit().is_on()); }

}  // namespace
}  // namespace trireme::train
