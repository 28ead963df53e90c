#include "trireme/comm/hierarchical/host_identity.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "trireme/comm/objects.h"

namespace trireme::comm {
namespace {

TEST(HostGroups, HoldTheRanksOfAHostAndThoseOfAPlace) {
  const std::vector<std::string> hosts{"b", "b", "a", "a", "c", "c"};
  harness::run_ranks(6, [&](Communicator& world) {
    const int rank = world.rank();
    const HostGroups groups = split_by_host(world, hosts[static_cast<size_t>(rank)]);
    ASSERT_TRUE(groups.is_split());
    EXPECT_EQ(all_gather_numbers(*groups.within, rank),
              (std::vector<int64_t>{rank / 2 * 2, rank / 2 * 2 + 1}));
    EXPECT_EQ(all_gather_numbers(*groups.between, rank),
              (std::vector<int64_t>{rank % 2, rank % 2 + 2, rank % 2 + 4}));
  });
}

TEST(HostGroups, ThereAreNoneOnOneHostOrOnHostsUnalike) {
  const std::vector<std::vector<std::string>> placements{
      {"a", "a", "a", "a"}, {"a", "b", "c", "d"}, {"a", "a", "a", "b"}, {"a", "b", "a", "b"}};
  for (const auto& hosts : placements) {
    harness::run_ranks(4, [&](Communicator& world) {
      EXPECT_FALSE(split_by_host(world, hosts[static_cast<size_t>(world.rank())]).is_split());
    });
  }
}

}  // namespace
}  // namespace trireme::comm
