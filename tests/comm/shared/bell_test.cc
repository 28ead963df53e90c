#include "trireme/comm/shared/segment.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

TEST(Bell, SleepReturnsAtOnceWhenTheConditionHolds) {
  Bell bell{};
  EXPECT_TRUE(bell.sleep([] { return true; }, 1h));
  EXPECT_EQ(bell.sleepers.load(), 0U);
}

TEST(Bell, SliceEndsASleepThatNobodyRings) {
  Bell bell{};
  EXPECT_FALSE(bell.sleep([] { return false; }, 1ms));
}

// A lost wake-up would sleep for the hour.
TEST(Bell, NoWakeUpIsLost) {
  Bell bell{};
  std::atomic<int> turn = 0;
  constexpr int kTurns = 20000;
  constexpr int kThreads = 3;
  std::vector<std::thread> threads;
  for (int self = 0; self < kThreads; ++self) {
    threads.emplace_back([&, self] {
      for (int i = self; i < kTurns; i += kThreads) {
        while (!bell.sleep([&] { return turn.load() == i; }, 1h)) {
        }
        turn.store(i + 1);
        bell.ring();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turn.load(), kTurns);
}

TEST(Bell, RingWithoutSleepersLeavesNoTrace) {
  Bell bell{};
  bell.ring();
  EXPECT_EQ(bell.rings.load(), 0U);
}

}  // namespace
}  // namespace trireme::comm
