#include "trireme/checkpoint/read/host_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#ifdef TRIREME_HAVE_GLOO
#include "tests/comm/c10d/gloo_ranks.h"
#endif

namespace trireme::checkpoint {
namespace {

using ::testing::Each;
using ::testing::Eq;

// The size of the group that this rank gets; 0: none.
int size_of_group(comm::Communicator& world, int color = 0) {
  const auto group = split_by_memory(world, color);
  return group ? group->size() : 0;
}

TEST(MemoryGroup, ThreadsAndProcessesOfAHostShareMemory) {
  const auto expect_all = [](comm::Communicator& world) {
    EXPECT_EQ(size_of_group(world), world.size() == 1 ? 0 : world.size());
  };
  for (const int size : {1, 2, 3}) harness::run_ranks(size, expect_all);
  EXPECT_THAT(harness::fork_ranks(3, expect_all), Each(Eq(0)));
}

TEST(MemoryGroup, AWrapperChangesNothing) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    harness::CountingCommunicator counted(world);
    EXPECT_EQ(size_of_group(counted), 2);
  });
}

TEST(MemoryGroup, EachColorHasItsGroupAndANegativeOneNone) {
  harness::run_ranks(5, [](comm::Communicator& world) {
    const int color = world.rank() == 4 ? -1 : world.rank() % 2;
    EXPECT_EQ(size_of_group(world, color), color < 0 ? 0 : 2);
  });
}

TEST(MemoryGroup, RanksOfOneHostShareMemoryAndThoseOfSeveralDoNot) {
  const std::vector<int> hosts{0, 1, 0, 1, 2};
  comm::run_hierarchical_ranks(hosts, [&](comm::Communicator& world) {
    const int host = hosts[static_cast<size_t>(world.rank())];
    EXPECT_EQ(size_of_group(world, host), host == 2 ? 0 : 2);
    EXPECT_EQ(size_of_group(world), 0);
  });
}

TEST(MemoryGroup, CopiesAreNoSharedMemory) {
  const auto expect_none = [](comm::Communicator& world) { EXPECT_EQ(size_of_group(world), 0); };
  harness::run_ranks(3, expect_none, {.zero_copy = false});
#ifdef TRIREME_HAVE_GLOO
  comm::run_gloo_ranks(3, expect_none);
#endif
}

}  // namespace
}  // namespace trireme::checkpoint
