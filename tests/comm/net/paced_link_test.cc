#include "trireme/comm/net/paced_link.h"

#include <limits>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;
using Fate = PacedLink::Fate;

const RandomKey kKey = random_key(1, "line");
constexpr int64_t kMs = 1'000'000;

TEST(PacedLink, APacketTakesItsBitsAndTheDelay) {
  PacedLink link({.rate = 1e6, .delay = 20ms}, kKey);
  // 1,000 bytes at 1 Mbit/s take 8 ms.
  EXPECT_EQ(link.send(5 * kMs, 1000).arrival_ns, 33 * kMs);
  // The line is free again by then.
  EXPECT_EQ(link.send(100 * kMs, 1000).arrival_ns, 128 * kMs);
  EXPECT_EQ(link.counts().packets, 2);
  EXPECT_EQ(link.counts().bytes, 2000);
}

TEST(PacedLink, PacketsWaitForEachOther) {
  PacedLink link({.rate = 1e6, .delay = 20ms}, kKey);
  for (int n = 1; n <= 10; ++n) EXPECT_EQ(link.send(0, 1000).arrival_ns, (20 + 8 * n) * kMs);
  // An earlier time counts as that of the packet before.
  EXPECT_EQ(link.send(-5 * kMs, 1000).arrival_ns, (20 + 88) * kMs);
}

TEST(PacedLink, TheQueueIsBounded) {
  PacedLink link({.rate = 8e6, .queue_bytes = 2500}, kKey);
  // 1 ms each. The fourth finds 3,000 bytes before it, one of which is being sent.
  for (int n = 1; n <= 3; ++n) EXPECT_EQ(link.send(0, 1000).fate, Fate::kArrives);
  EXPECT_EQ(link.send(0, 1000).fate, Fate::kDropped);
  EXPECT_EQ(link.send(kMs, 1000).arrival_ns, 4 * kMs);
  EXPECT_EQ(link.counts().dropped, 1);
  EXPECT_EQ(link.counts().packets, 4);
  EXPECT_EQ(link.counts().bytes, 4000);
}

TEST(PacedLink, LossIsAPureFunctionOfKeyAndNumber) {
  const LinkShape shape{.rate = 1e9, .loss = 0.1};
  PacedLink first(shape, kKey), again(shape, kKey), other(shape, random_key(2, "line"));
  int num_lost = 0, num_different = 0;
  for (int n = 0; n < 10'000; ++n) {
    const Fate fate = first.send(n * kMs, 100).fate;
    // At another time and of another size.
    EXPECT_EQ(again.send(7 * n * kMs, 1500).fate, fate);
    num_different += other.send(n * kMs, 100).fate != fate ? 1 : 0;
    num_lost += fate == Fate::kLost ? 1 : 0;
  }
  // Five standard deviations of a binomial are 150.
  EXPECT_NEAR(num_lost, 1000, 150);
  EXPECT_GT(num_different, 1000);
  EXPECT_EQ(first.counts().lost, num_lost);
  EXPECT_EQ(first.counts().packets, 10'000) << "lost packets were on the line";
}

TEST(PacedLink, ADroppedPacketHasANumberToo) {
  const LinkShape narrow{.rate = 8e6, .loss = 0.5, .queue_bytes = 0};
  PacedLink link(narrow, kKey), free(narrow, kKey);
  for (int n = 0; n < 100; ++n) {
    const auto passage = link.send(0, 1000);  // only the first finds the line free
    const auto expected = free.send(n * kMs, 1000).fate;
    EXPECT_EQ(passage.fate, n == 0 ? expected : Fate::kDropped);
  }
  EXPECT_EQ(link.send(500 * kMs, 1000).fate, free.send(500 * kMs, 1000).fate);
}

TEST(PacedLink, JitterIsWithinItsBoundsAndKeepsTheOrder) {
  PacedLink link({.rate = 1e12, .delay = 10ms, .jitter = 5ms}, kKey);
  int64_t last = 0;
  double sum = 0;
  for (int n = 0; n < 1000; ++n) {
    const int64_t sent = n * 20 * kMs;
    const int64_t took = link.send(sent, 100).arrival_ns - sent;
    EXPECT_GE(took, 10 * kMs);
    EXPECT_LE(took, 15 * kMs + 1000);
    sum += static_cast<double>(took);
  }
  EXPECT_NEAR(sum / 1000, 12.5 * kMs, 0.3 * kMs);
  // One after another without a pause: none overtakes.
  for (int n = 0; n < 1000; ++n) {
    const int64_t arrival = link.send(30'000 * kMs, 100).arrival_ns;
    EXPECT_GE(arrival, last);
    last = arrival;
  }
}

TEST(PacedLink, TimeDoesNotOverflow) {
  PacedLink link({.rate = 1,
                  .delay = std::chrono::hours(24 * 365),
                  .queue_bytes = std::numeric_limits<double>::infinity()},
                 kKey);
  int64_t last = 0;
  for (int n = 0; n < 100; ++n) {
    const int64_t arrival = link.send(0, size_t{1} << 40).arrival_ns;
    EXPECT_GE(arrival, last);
    last = arrival;
  }
}

TEST(PacedLink, WorsensForAWhile) {
  PacedLink link({.rate = 8e9, .delay = 10ms, .loss = 0.5}, kKey), plain = link;
  int num_more = 0;
  link.worsen(5ms, 0.5);
  for (int n = 0; n < 1000; ++n) {
    const auto worse = link.send(n * kMs, 1000), usual = plain.send(n * kMs, 1000);
    EXPECT_EQ(worse.arrival_ns, usual.arrival_ns + 5 * kMs);
    if (usual.fate == Fate::kLost) EXPECT_EQ(worse.fate, Fate::kLost);
    num_more += worse.fate != usual.fate ? 1 : 0;
  }
  EXPECT_NEAR(num_more, 250, 70);  // five standard deviations
  link.worsen(0ms, 0);
  for (int n = 0; n < 100; ++n) {
    EXPECT_EQ(link.send((2000 + n) * kMs, 1000).fate, plain.send((2000 + n) * kMs, 1000).fate);
  }
  EXPECT_THROW(link.worsen(0ms, 1.5), InternalError);
}

TEST(PacedLink, RefusesShapesThatAreNone) {
  for (const LinkShape& shape :
       {LinkShape{.rate = 0}, LinkShape{.delay = -1ns}, LinkShape{.jitter = -1ns},
        LinkShape{.loss = -0.1}, LinkShape{.loss = 1}}) {
    EXPECT_THROW(PacedLink(shape, kKey), InternalError);
  }
}

}  // namespace
}  // namespace trireme::comm
