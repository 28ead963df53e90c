#include "trireme/dataset/recommend/csv_form.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/dataset/recommend/criteo.h"

namespace trireme::dataset {
namespace {

TEST(CsvForm, TransformsAreThoseThatTheirNamesSay) {
  const CsvNumber log{.transform = NumberTransform::kLog, .mean = 7, .deviation = 3};
  const CsvNumber none{.transform = NumberTransform::kNone, .mean = 7, .deviation = 3};
  const CsvNumber standard{.transform = NumberTransform::kStandard, .mean = 7, .deviation = 4};
  for (const double x : {-3.0, 0.0, 0.5, 7.0, 123456789.0}) {
    EXPECT_EQ(log.dense(x), criteo_dense(x)) << x;
    EXPECT_EQ(none.dense(x), static_cast<float>(x));
    EXPECT_EQ(standard.dense(x), static_cast<float>((x - 7) / 4));
  }
}

TEST(NumberMoments, AreThoseOfTheNumbers) {
  NumberMoments moments;
  EXPECT_EQ(moments.mean(), 0);
  EXPECT_EQ(moments.deviation(), 1);
  for (const double x : {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}) moments.add(x);
  EXPECT_DOUBLE_EQ(moments.mean(), 5);
  EXPECT_DOUBLE_EQ(moments.deviation(), 2);
}

TEST(NumberMoments, EqualNumbersHaveADeviationToDivideBy) {
  NumberMoments moments;
  for (int i = 0; i < 5; ++i) moments.add(1e9);
  EXPECT_EQ(moments.mean(), 1e9);
  EXPECT_EQ(moments.deviation(), 1);
}

TEST(NumberMoments, SmallDifferencesOfLargeNumbersAreKept) {
  NumberMoments moments;
  for (int i = 0; i < 1000; ++i) moments.add(1e9 + i % 2);
  EXPECT_NEAR(moments.deviation(), 0.5, 1e-9);
}

}  // namespace
}  // namespace trireme::dataset
