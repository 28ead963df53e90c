#include "trireme/train/profile/span_recording.h"

#include <atomic>
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "trireme/base/clock.h"

namespace trireme::train {
namespace {

TEST(ClockOffsets, OneHostNeedsNoMeasurement) {
  for (int size = 1; size <= 3; ++size) {
    std::atomic<int> num_looks = 0;
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const auto offsets =
          clock_offsets(world, {"here", [&] { return ++num_looks, monotonic_ns(); }});
      EXPECT_EQ(offsets,
                world.rank() == 0 ? std::vector<int64_t>(size, 0) : std::vector<int64_t>());
    });
    EXPECT_EQ(num_looks, 0);
  }
}

TEST(ClockOffsets, HostsApartAreMeasuredOnce) {
  constexpr int64_t kApart = 3'600'000'000'000;  // an hour
  const std::vector<int> hosts = {0, 1, 0, 2, 1};
  harness::run_ranks(5, [&](comm::Communicator& world) {
    const int host = hosts[world.rank()];
    const auto offsets = clock_offsets(
        world,
        {std::to_string(host), [&] { return monotonic_ns() + (host == 2 ? -1 : host) * kApart; }});
    ASSERT_EQ(offsets.size(), world.rank() == 0 ? 5u : 0u);
    if (world.rank() != 0) return;
    EXPECT_EQ(offsets[0], 0);
    EXPECT_EQ(offsets[2], 0);
    EXPECT_EQ(offsets[4], offsets[1]);
    constexpr int64_t kTolerance = 100'000'000;  // a busy machine's
    EXPECT_LT(std::abs(offsets[1] - kApart), kTolerance);
    EXPECT_LT(std::abs(offsets[3] + kApart), kTolerance);
  });
}

}  // namespace
}  // namespace trireme::train
