#include "trireme/launch/agent/line.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(LocalLine, LeadsAndIsNeverLate) {
  const auto line = make_local_line();
  EXPECT_TRUE(line->leads());
  EXPECT_TRUE(line->hosts().empty());
  line->report({.id = "a", .name = "here"});
  ASSERT_EQ(line->hosts().size(), 1);
  EXPECT_EQ(line->hosts().front().report.name, "here");
  line->publish({.version = 3, .phase = Phase::kRun});
  EXPECT_EQ(line->plan().version, 3);
  EXPECT_EQ(line->problem(), "");
  EXPECT_FALSE(line->has_lapsed());
  EXPECT_TRUE(line->begin_anew());
}

}  // namespace
}  // namespace trireme::launch
