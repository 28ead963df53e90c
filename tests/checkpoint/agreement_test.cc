#include "trireme/checkpoint/agreement.h"

#include <atomic>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/ranks.h"

namespace trireme::checkpoint {
namespace {

TEST(Agreement, EveryRankGetsEveryRanksResult) {
  for (int size = 1; size <= 4; ++size) {
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const auto all = gather_or_throw(world, [&] { return std::string(world.rank(), 'x'); });
      ASSERT_EQ(static_cast<int>(all.size()), size);
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(all[rank], std::string(rank, 'x'));
    });
  }
}

TEST(Agreement, OneRanksFailureIsThrownOnAllWithItsReason) {
  std::atomic<int> threw = 0;
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const std::string error = checkpoint_error([&] {
      run_or_throw(world, [&] {
        if (world.rank() > 0) throw std::runtime_error(concat("full ", world.rank(), "\ntrace"));
      });
    });
    EXPECT_EQ(error, "rank 1: full 1");
    ++threw;
    // The group is still good.
    EXPECT_EQ(gather_or_throw(world, [] { return std::string("a"); }).size(), 3u);
  });
  EXPECT_EQ(threw, 3);
}

TEST(Agreement, ALostPeerIsNotHiddenBehindACheckpointError) {
  harness::run_ranks(1, [](comm::Communicator& world) {
    EXPECT_THROW(run_or_throw(world, [] { throw CommError("rank 1 is dead"); }), CommError);
  });
}

}  // namespace
}  // namespace trireme::checkpoint
