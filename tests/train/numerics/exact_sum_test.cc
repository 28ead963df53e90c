#include "trireme/train/numerics/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::train::inline internal {
namespace {

double sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

TEST(ExactSum, RoundsOnceAtTheEnd) {
  EXPECT_EQ(sum_of({1e300, 1, -1e300}), 1);
  EXPECT_EQ(sum_of({1, 0x1p-53, 0x1p-53}), 1 + 0x1p-52);
  EXPECT_EQ(sum_of({}), 0);
}

TEST(ExactSum, ReachesTheEndsOfDoubles) {
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  constexpr double kMost = std::numeric_limits<double>::max();
  EXPECT_EQ(sum_of({kLeast}), kLeast);
  EXPECT_EQ(sum_of({kLeast, kLeast, -kLeast}), kLeast);
  EXPECT_EQ(sum_of({kMost}), kMost);
  EXPECT_EQ(sum_of({kMost, kMost, -kMost, -kMost, -kLeast}), -kLeast);
  EXPECT_EQ(sum_of({kMost, kMost}), std::numeric_limits<double>::infinity());
}

TEST(ExactSum, HasTheSameBitsInAnyOrderAndAnyParts) {
  std::mt19937_64 engine(7);
  std::normal_distribution<double> normal;
  for (int draw = 0; draw < 50; ++draw) {
    std::vector<double> terms(1000);
    for (double& term : terms) term = normal(engine) * std::exp2(40 * normal(engine));
    const double expected = sum_of(terms);
    std::ranges::shuffle(terms, engine);
    EXPECT_EQ(sum_of(terms), expected);
    std::vector<ExactSum> parts(3);
    for (const double term : terms) parts[engine() % parts.size()].add(term);
    ExactSum whole;
    for (ExactSum& part : parts) whole.add(part.limbs());
    EXPECT_EQ(whole.value(), expected);
  }
}

TEST(ExactSum, IsNextToTheLongSum) {
  std::mt19937_64 engine(8);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> terms(10000);
  long double expected = 0;
  for (double& term : terms) expected += term = uniform(engine);
  EXPECT_NEAR(sum_of(terms), static_cast<double>(expected), 0x1p-39);  // an ulp of up to 2^13
}

TEST(ExactSum, SaysThatATermWasNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(sum_of({1, std::nan("")})));
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity})));
  ExactSum a, b;
  a.add(kInfinity);
  b.add(1);
  b.add(a.limbs());
  EXPECT_TRUE(std::isnan(b.value()));
}

}  // namespace
}  // namespace trireme::train::inline internal
