#include "trireme/base/numbers.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Median, IsTheMiddleOneOrTheMeanOfTheTwo) {
  EXPECT_EQ(median(std::vector<double>{}), 0);
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{5, 1, 4}), 4);
  EXPECT_EQ(median(std::vector<double>{8, 1, 4, 3}), 3.5);
}

TEST(Median, OfLargeWholeNumbersDoesNotOverflow) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(median(std::vector<int64_t>{most, most - 2}), most - 1);
}

}  // namespace
}  // namespace trireme
