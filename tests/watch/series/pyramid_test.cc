#include "trireme/watch/series/pyramid.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

Summary plain_summary(const Pyramid& pyramid, size_t begin, size_t end) {
  Summary summary;
  for (size_t i = begin; i < end; ++i) summary.add(pyramid.at(i));
  return summary;
}

void expect_same(const Summary& a, const Summary& b) {
  EXPECT_EQ(a.min, b.min);
  EXPECT_EQ(a.max, b.max);
  EXPECT_EQ(a.count, b.count);
  EXPECT_NEAR(a.sum, b.sum, 1e-9 * (1 + std::abs(b.sum)));
}

TEST(Pyramid, ARangesSummaryIsThatOfItsValues) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> value(-1, 1);
  Pyramid pyramid;
  for (int i = 0; i < 5000; ++i)
    pyramid.add(i % 97 == 0 ? std::numeric_limits<double>::quiet_NaN() : value(random));
  for (int i = 0; i < 300; ++i) {
    const size_t begin = random() % 5001, end = begin + random() % (5001 - begin);
    expect_same(pyramid.summary(begin, end), plain_summary(pyramid, begin, end));
  }
}

TEST(Pyramid, OneSpikeIsInEveryRangeThatHasIt) {
  Pyramid pyramid;
  for (int i = 0; i < 100'000; ++i) pyramid.add(i == 54'321 ? 1000 : 1);
  for (size_t width = 1; width < 100'000; width *= 3) {
    const size_t begin = 54'321 / width * width;
    EXPECT_EQ(pyramid.summary(begin, std::min<size_t>(100'000, begin + width)).max, 1000) << width;
  }
}

TEST(Pyramid, AfterACutItGoesOnAsIfTheRestHadNeverBeen) {
  for (const size_t kept : {0, 1, 15, 16, 17, 63, 64, 1000}) {
    Pyramid pyramid;
    for (int i = 0; i < 1500; ++i) pyramid.add(i);
    pyramid.cut(kept);
    for (int i = 0; i < 700; ++i) pyramid.add(-i);
    ASSERT_EQ(pyramid.size(), kept + 700);
    for (size_t begin = 0; begin < pyramid.size(); begin += 13)
      expect_same(pyramid.summary(begin, pyramid.size()),
                  plain_summary(pyramid, begin, pyramid.size()));
  }
}

TEST(Pyramid, NothingFiniteHasNoMean) {
  Pyramid pyramid;
  pyramid.add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(pyramid.summary(0, 1).count, 0u);
  EXPECT_TRUE(std::isnan(pyramid.summary(0, 1).mean()));
}

}  // namespace
}  // namespace trireme::watch
