#include "trireme/launch/membership/report.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(Links, AreThoseOfThisQuestionAmongTheseHostsAndEachOnce) {
  const HostReport a{.id = "1", .name = "a", .links_known = 2, .unreached = {{"3", "late"}}};
  const HostReport b{.id = "2", .name = "b", .links_known = 1, .unreached = {{"1", "old"}}};
  const HostReport c{.id = "3",
                     .name = "c",
                     .link_address = "10.0.0.3",
                     .links_known = 2,
                     .unreached = {{"1", "late"}, {"3", "itself"}, {"4", "nobody of these"}}};
  const std::vector<DeadLink> links = dead_links({&a, &b, &c}, 2);
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(describe(links[0]), "a does not reach c at 10.0.0.3 (late)");
}

TEST(Links, TheFewestHostsAreDropped) {
  std::vector<HostReport> hosts(5);
  std::vector<const HostReport*> all;
  for (const HostReport& host : hosts) all.push_back(&host);
  EXPECT_TRUE(hosts_to_drop(all, {}).empty());
  // A star around host 1, and a link beside it.
  EXPECT_EQ(
      hosts_to_drop(
          all,
          {{all[1], all[0], ""}, {all[2], all[1], ""}, {all[1], all[3], ""}, {all[3], all[4], ""}}),
      (std::vector<const HostReport*>{all[1], all[4]}));
}

}  // namespace
}  // namespace trireme::launch
