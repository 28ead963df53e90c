#include "trireme/launch/watchdog/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string policy_error(std::string_view text) {
  try {
    parse_policy(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Policy, TextChangesTheDefault) {
  const Policy policy =
      parse_policy(" hang=exclude,straggler = restart, hang-after=60,slower-by=2 ");
  EXPECT_EQ(policy.hang, Action::kExclude);
  EXPECT_EQ(policy.straggler, Action::kRestart);
  EXPECT_EQ(policy.crash, Policy().crash);
  EXPECT_EQ(policy.corruption, Policy().corruption);
  EXPECT_EQ(policy.hang_after, 60s);
  EXPECT_EQ(policy.slower_by, 2);
  EXPECT_EQ(action_of(policy, FaultKind::kHang), Action::kExclude);
  EXPECT_EQ(parse_policy("exclusion=5").exclusion, 5s);
  EXPECT_EQ(parse_policy("").hang_after, Policy().hang_after);
}

TEST(Policy, ErrorsNameTheKeyAndWhatMayStandThere) {
  EXPECT_THAT(policy_error("hung=warn"),
              HasSubstr("no key \"hung\"; expected crash, hang, straggler"));
  EXPECT_THAT(policy_error("hang=kill"),
              HasSubstr("the watchdog's hang is \"kill\"; expected warn"));
  EXPECT_THAT(policy_error("hang"), HasSubstr("\"hang\"; expected KEY=VALUE"));
  EXPECT_THAT(policy_error("hang-after=0"), HasSubstr("hang-after is \"0\""));
  EXPECT_THAT(policy_error("hang-after=soon"), HasSubstr("hang-after is \"soon\""));
  EXPECT_THAT(policy_error("slower-by=nan"), HasSubstr("slower-by is \"nan\""));
  EXPECT_THAT(policy_error("slower-by=1"), HasSubstr("slower-by is \"1\""));
  EXPECT_THAT(policy_error(std::string(5000, ',')), HasSubstr("5000 bytes"));
}

TEST(Policy, EveryKindAndActionHasAName) {
  EXPECT_EQ(name_of(FaultKind::kCorruption), "corruption");
  EXPECT_EQ(name_of(Action::kExclude), "exclude");
}

}  // namespace
}  // namespace trireme::launch
