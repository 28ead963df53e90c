#include "trireme/comm/rounds/patience.h"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

TEST(Patience, HasNoLimitUntilEnoughIsKnown) {
  Patience patience({.least = milliseconds(10), .deviations = 2, .fewest = 3});
  for (int i = 0; i < 2; ++i) patience.add(milliseconds(5));
  EXPECT_FALSE(patience.limit());
  patience.add(milliseconds(5));
  EXPECT_EQ(patience.limit(), milliseconds(10));
}

TEST(Patience, IsTheMedianAndSomeDeviations) {
  Patience patience({.least = milliseconds(10), .deviations = 3, .fewest = 1});
  for (const int each : {0, 100, 110, 120, 5000}) patience.add(milliseconds(each));
  // The median is 110, and that of the deviations 110, 10, 0, 10 and 4890 is 10.
  EXPECT_EQ(patience.limit(), milliseconds(140));
}

TEST(Patience, ForgetsWhatIsLongAgo) {
  Patience patience({.least = milliseconds(1), .deviations = 0, .fewest = 1});
  for (int i = 0; i < 300; ++i) patience.add(milliseconds(1'000'000));
  for (int i = 0; i < 256; ++i) patience.add(milliseconds(20));
  EXPECT_EQ(patience.limit(), milliseconds(20));
}

}  // namespace
}  // namespace trireme::comm
