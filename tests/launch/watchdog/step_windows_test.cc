#include "trireme/launch/watchdog/watch.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

void add(StepWindows& windows, int64_t begin, int64_t end, std::chrono::nanoseconds computing) {
  for (int64_t step = begin; step <= end; ++step) windows.add(step, computing, 1ms);
}

TEST(StepWindows, AreTheSameStepsOnEveryRank) {
  StepWindows windows;
  add(windows, 1, 20, 10ms);
  EXPECT_TRUE(windows.complete().empty());  // until the next one begins
  add(windows, 21, 41, 30ms);
  EXPECT_EQ(windows.complete(), (std::vector<StepWindow>{{1, 10ms, 1ms}, {21, 30ms, 1ms}}));
}

TEST(StepWindows, OneSlowStepDoesNotChangeTheMedian) {
  StepWindows windows;
  add(windows, 1, 7, 10ms);
  windows.add(8, 5s, 1ms);
  add(windows, 9, 21, 10ms);
  EXPECT_EQ(windows.complete(), (std::vector<StepWindow>{{1, 10ms, 1ms}}));
}

TEST(StepWindows, WindowWithFewOfItsStepsIsLeftOut) {
  StepWindows resumed;
  add(resumed, 37, 61, 10ms);  // 4 steps of the window from 21
  EXPECT_EQ(resumed.complete(), (std::vector<StepWindow>{{41, 10ms, 1ms}}));
  StepWindows half;
  add(half, 31, 41, 10ms);
  EXPECT_EQ(half.complete(), (std::vector<StepWindow>{{21, 10ms, 1ms}}));
}

TEST(StepWindows, KeepTheLatest) {
  StepWindows windows;
  add(windows, 1, 20 * 10 + 1, 10ms);
  ASSERT_EQ(windows.complete().size(), kMaxWindows);
  EXPECT_EQ(windows.complete().back().first_step, 181);
}

TEST(StepWindows, RunThatGoesBackBeginsAnew) {
  StepWindows windows;
  add(windows, 1, 65, 10ms);
  windows.add(41, 10ms, 1ms);
  EXPECT_TRUE(windows.complete().empty());
  add(windows, 42, 61, 20ms);
  EXPECT_EQ(windows.complete(), (std::vector<StepWindow>{{41, 20ms, 1ms}}));
  windows.add(0, 1ms, 1ms);  // no step
  EXPECT_EQ(windows.complete().size(), 1u);
}

}  // namespace
}  // namespace trireme::launch
