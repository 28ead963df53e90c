#include "trireme/watch/serve/meanings.h"

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

TEST(Meanings, ComeFromTheTableOfMetricsAndOfTheRanksColumns) {
  EXPECT_EQ(unit_of("step_seconds"), "s");
  EXPECT_EQ(unit_of("samples_per_second"), "1/s");
  EXPECT_EQ(unit_of("rank/12/own_seconds"), "s");
  EXPECT_EQ(unit_of("ranks/communication_seconds/data"), "s");
  EXPECT_EQ(unit_of("ranks/memory_bytes/weights"), "bytes");
  EXPECT_EQ(unit_of("rank/x"), "");
  EXPECT_EQ(unit_of("strange"), "");
  EXPECT_NE(meaning_of("loss"), "");
  EXPECT_NE(meaning_of("ranks/own_seconds"), "");
  EXPECT_NE(meaning_of("ranks/communication_seconds/data").find("axis data"), std::string::npos);
  EXPECT_EQ(meaning_of("strange"), "");
}

}  // namespace
}  // namespace trireme::watch
