#include "trireme/launch/agent/line.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

constexpr BootClock::time_point kStart{1000s};

TEST(Lease, LapsesAfterItsLength) {
  Lease lease(3s, kStart);
  lease.renew(kStart + 2s, kStart + 2500ms);
  EXPECT_EQ(lease.last_contact(), kStart + 2s);
  EXPECT_FALSE(lease.has_lapsed(kStart + 5s));
  EXPECT_TRUE(lease.has_lapsed(kStart + 5001ms));
}

// After a pause the thread that renews it may run before the one that asks.
TEST(Lease, RemembersThatItHadLapsedWhenItIsRenewed) {
  Lease lease(3s, kStart);
  lease.renew(kStart + 60s, kStart + 60s);
  EXPECT_TRUE(lease.has_lapsed(kStart + 60s));
  lease.renew(kStart + 61s, kStart + 61s);
  EXPECT_TRUE(lease.has_lapsed(kStart + 61s));
}

// The answer came, and then the process was paused before it could note that.
TEST(Lease, LapsesBetweenAnAnswerAndItsNote) {
  Lease lease(3s, kStart);
  lease.renew(kStart + 1s, kStart + 60s);
  EXPECT_TRUE(lease.has_lapsed(kStart + 60s));
}

TEST(Lease, BeginsAnewOnlyOnceTheLeaderAnswers) {
  Lease lease(3s, kStart);
  EXPECT_FALSE(lease.begin_anew(kStart + 4s));
  EXPECT_TRUE(lease.has_lapsed(kStart + 4s));
  lease.renew(kStart + 5s, kStart + 5s);
  EXPECT_TRUE(lease.begin_anew(kStart + 5s));
  EXPECT_FALSE(lease.has_lapsed(kStart + 5s));
}

TEST(BootClock, IsNotBehindTheSteadyClock) {
  EXPECT_GE(BootClock::now().time_since_epoch() + 1s,
            std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace
}  // namespace trireme::launch
