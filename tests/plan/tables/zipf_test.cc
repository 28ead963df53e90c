#include "trireme/plan/tables/table_statistics.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

double plain_distinct(int64_t rows, double exponent, double draws) {
  double all = 0, sum = 0;
  for (int64_t i = 1; i <= rows; ++i) all += std::pow(static_cast<double>(i), -exponent);
  for (int64_t i = 1; i <= rows; ++i) {
    sum += 1 - std::pow(1 - std::pow(static_cast<double>(i), -exponent) / all, draws);
  }
  return sum;
}

TEST(Zipf, ExpectsAsManyDifferentRowsAsThePlainSum) {
  for (const int64_t rows : {1, 2, 50, 30000}) {
    for (const double exponent : {0.0, 0.5, 1.05, 2.0}) {
      for (const double draws : {1.0, 10.0, 4096.0}) {
        const double plain = plain_distinct(rows, exponent, draws);
        EXPECT_NEAR(expected_distinct(rows, exponent, draws), plain, 1e-3 * plain)
            << rows << " " << exponent << " " << draws;
      }
    }
  }
}

TEST(Zipf, ExpectsNoMoreThanThereIs) {
  EXPECT_EQ(expected_distinct(0, 1, 5), 0);
  EXPECT_EQ(expected_distinct(7, 1, 0), 0);
  EXPECT_NEAR(expected_distinct(7, 1, 1e9), 7, 1e-6);
  EXPECT_NEAR(expected_distinct(int64_t{1} << 32, 0, 1e5), 1e5, 10);
}

TEST(Zipf, FindsTheExponentAgain) {
  for (const double exponent : {0.0, 0.3, 0.9, 1.05, 1.8}) {
    const double distinct = expected_distinct(100000, exponent, 50000);
    EXPECT_NEAR(fit_zipf(100000, 50000, distinct), exponent, 1e-3);
  }
  EXPECT_EQ(fit_zipf(100, 50, 50), 0);  // more than even draws have
  EXPECT_EQ(fit_zipf(100, 50, 1), 4);
}

TEST(Zipf, SharesOfTheHottestRows) {
  EXPECT_NEAR(zipf_share(1000, 0, 0.01), 0.011, 1e-3);
  EXPECT_NEAR(zipf_share(10, 1, 0.01), 1 / 2.928968, 1e-6);
  EXPECT_EQ(zipf_share(1, 1, 0.01), 1);
}

}  // namespace
}  // namespace trireme::plan
