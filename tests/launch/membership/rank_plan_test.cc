#include "trireme/launch/membership/rank_plan.h"

#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

Plan example() {
  return {.version = 7,
          .phase = Phase::kLeave,
          .epoch = 3,
          .job = "job-1",
          .hosts = {{"id-a", "a", 0, 2}, {"id-b", "b", 2, 1}},
          .store_host = "10.0.0.1",
          .store_port = 4711,
          .is_graceful = true,
          .reason = "host c joins",
          .exit_code = 3,
          .num_restarts = 2,
          .refused = {{"id-d", "another config"}},
          .spares = {"id-e"},
          .counted_out = {"id-f"},
          .injections = {{4, "a", "kill rank=1"}},
          .links_asked = 5,
          .linked = {{"id-a", "10.0.0.1", 80}, {"id-b", "fe80::1", 81}}};
}

TEST(Plan, IsReadAsItWasWritten) {
  const Plan plan = parse_plan(to_json(example()));
  EXPECT_EQ(to_json(plan), to_json(example()));
  EXPECT_EQ(plan.num_ranks(), 3);
  ASSERT_NE(plan.find("id-b"), nullptr);
  EXPECT_EQ(plan.find("id-b")->first_rank, 2);
  EXPECT_EQ(plan.find("id-c"), nullptr);
  EXPECT_EQ(plan.find_refused("id-d")->reason, "another config");
  EXPECT_TRUE(plan.is_spare("id-e"));
  EXPECT_FALSE(plan.is_spare("id-a"));
  EXPECT_TRUE(plan.has_counted_out("id-f"));
  EXPECT_FALSE(plan.has_counted_out("id-a"));
}

TEST(Plan, RefusesRanksThatAreNotConsecutive) {
  Plan plan = example();
  plan.hosts[1].first_rank = 1;
  EXPECT_THROW(parse_plan(to_json(plan)), ConfigError);
}

TEST(Plan, RefusesWhatIsNoPlan) {
  for (const char* text : {"", "{}", "[]", "{\"version\": 1e300}", "{\"phase\": \"dance\"}"}) {
    EXPECT_THROW(parse_plan(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace trireme::launch
