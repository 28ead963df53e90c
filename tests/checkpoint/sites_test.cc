#include "trireme/checkpoint/sites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/hosts.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Sites, AreTheRanksThatSeeTheSameFolder) {
  const std::vector<std::vector<int>> cases{{0}, {0, 0}, {0, 1}, {0, 0, 1}, {0, 1, 0, 2}};
  for (const std::vector<int>& host_of_rank : cases) {
    const Hosts hosts(host_of_rank);
    harness::run_ranks(hosts.num_ranks(), [&](comm::Communicator& world) {
      const Sites sites = find_sites(hosts.root_of(world), world);
      EXPECT_EQ(sites.mine(), host_of_rank[world.rank()]);
      EXPECT_EQ(sites.size(), *std::ranges::max_element(host_of_rank) + 1);
      const int leader = sites.leader(sites.mine());
      EXPECT_EQ(host_of_rank[leader], sites.mine());
      EXPECT_EQ(sites.leads(), leader == world.rank());
      EXPECT_LE(leader, world.rank());
    });
    for (const int host : host_of_rank) EXPECT_TRUE(fs::is_empty(hosts.root(host)));
  }
}

TEST(Sites, AFolderThatCannotBeMadeFailsOnEveryRank) {
  const Hosts hosts({0, 1, 1});
  overwrite(hosts.root(1), "no folder");
  harness::run_ranks(3, [&](comm::Communicator& world) {
    try {
      find_sites(hosts.root_of(world), world);
      ADD_FAILURE() << "found them";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("host1"));
    }
  });
}

TEST(Sites, LeadersWorkForTheirSites) {
  const Hosts hosts({0, 1, 0, 1});
  harness::run_ranks(4, [&](comm::Communicator& world) {
    const Sites sites = find_sites(hosts.root_of(world), world);
    const auto who = [&](const Peers&) { return std::to_string(world.rank()); };
    EXPECT_EQ(from_leader(sites, world, who), std::to_string(world.rank() % 2));
    const auto fail = [&](const Peers&) {
      if (world.rank() == 1) throw ConfigError("no room");
    };
    EXPECT_THROW(on_leaders(sites, world, fail), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::checkpoint
