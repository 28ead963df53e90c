#include "trireme/train/metrics/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One value after the other, as the classic writer does it.
Histogram reference_of(const at::Tensor& values, double factor = 1) {
  Histogram result;
  const std::span<const double> limits = bucket_limits();
  result.counts.resize(limits.size());
  const at::Tensor flat = values.reshape({-1}).to(at::kDouble);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const double value = flat[i].item<double>() * factor;
    if (!std::isfinite(value)) {
      ++result.num_nonfinite;
      continue;
    }
    const auto bucket = std::ranges::upper_bound(limits, value) - limits.begin();
    ++result.counts[std::min(static_cast<size_t>(bucket), limits.size() - 1)];
    result.minimum = std::min(result.minimum, value);
    result.maximum = std::max(result.maximum, value);
    result.sum += value;
    result.sum_squares += value * value;
  }
  return result;
}

// Two fp64 sums of n terms in different orders differ by less than n 2^-52 of the terms' size.
void expect_same(const Histogram& actual, const Histogram& expected) {
  EXPECT_EQ(actual.counts, expected.counts);
  EXPECT_EQ(actual.minimum, expected.minimum);
  EXPECT_EQ(actual.maximum, expected.maximum);
  EXPECT_EQ(actual.num_nonfinite, expected.num_nonfinite);
  const double num = expected.num();
  const double bound = num * 0x1p-52;
  EXPECT_NEAR(actual.sum, expected.sum, bound * std::sqrt(num * expected.sum_squares));
  EXPECT_NEAR(actual.sum_squares, expected.sum_squares, bound * expected.sum_squares);
}

TEST(Histogram, BucketsAreThoseOfTensorBoard) {
  const std::span<const double> limits = bucket_limits();
  // 774 powers of 1.1 from 1e-12 to 1e20 on either side, the largest double on either, and 0.
  ASSERT_EQ(limits.size(), 2U * 775 + 1);
  EXPECT_TRUE(std::ranges::is_sorted(limits));
  EXPECT_EQ(limits[775], 0);
  EXPECT_EQ(limits[776], 1e-12);
  EXPECT_EQ(limits[777], 1e-12 * 1.1);
  EXPECT_EQ(limits.back(), std::numeric_limits<double>::max());
  for (size_t i = 0; i < limits.size(); ++i) EXPECT_EQ(limits[i], -limits[1550 - i]);
}

TEST(Histogram, IsThatOfEachValueInTurn) {
  at::manual_seed(1);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {1, 7, 1000}) {
      const at::Tensor values = at::randn({size, 3}, at::kDouble).pow(5).to(dtype);
      expect_same(histogram_of(values), reference_of(values));
      expect_same(histogram_of(values.t(), 0x1p-10), reference_of(values, 0x1p-10));
    }
  }
}

TEST(Histogram, EdgesZerosAndExtremesFallWhereTheyShould) {
  std::vector<double> values(bucket_limits().begin(), bucket_limits().end());
  values.insert(values.end(), {0.0, -0.0, 5e-324, -5e-324, 1e300, -1e300});
  for (const double limit : bucket_limits()) values.push_back(std::nextafter(limit, 0));
  const at::Tensor all = at::tensor(values, at::kDouble);
  const Histogram actual = histogram_of(all), expected = reference_of(all);
  EXPECT_EQ(actual.counts, expected.counts);  // the sums of such values are not finite
  EXPECT_EQ(actual.minimum, expected.minimum);
  EXPECT_EQ(actual.maximum, expected.maximum);
}

TEST(Histogram, ValuesThatAreNotFiniteAreCountedApart) {
  const at::Tensor values = at::tensor({1.0, std::nan(""), kInfinity, -kInfinity, -2.0});
  const Histogram histogram = histogram_of(values);
  EXPECT_EQ(histogram.num(), 2);
  EXPECT_EQ(histogram.num_nonfinite, 3);
  EXPECT_EQ(histogram.sum, -1);
  EXPECT_EQ(histogram.minimum, -2);
  EXPECT_EQ(histogram_of(at::full({3}, std::nan(""))).num(), 0);
}

TEST(Histogram, OfNothingHasNoValues) {
  const Histogram histogram = histogram_of(at::empty({0, 4}));
  EXPECT_EQ(histogram.num(), 0);
  EXPECT_EQ(histogram.minimum, kInfinity);
}

TEST(Histogram, LargeTensorsAreTakenInChunks) {
  at::manual_seed(2);
  const at::Tensor values = at::randn({(int64_t{1} << 18) + 5});
  Histogram expected = histogram_of(values.slice(0, 0, 1000));
  expected.add(histogram_of(values.slice(0, 1000)));
  expect_same(histogram_of(values), expected);
}

TEST(Histogram, PartsOnRanksAddUpToTheWhole) {
  at::manual_seed(3);
  std::vector<at::Tensor> wholes = {at::randn({100, 7}, at::kDouble), at::randn({3}, at::kDouble),
                                    at::empty({0}, at::kDouble)};
  wholes[1][1] = std::nan("");
  for (const int size : {1, 2, 3, 4}) {
    std::vector<Histogram> sums;
    harness::run_ranks(size, [&](comm::Communicator& world) {
      std::vector<Histogram> mine;
      for (const at::Tensor& whole : wholes) {
        // Uneven: each rank's part is half of what is left, the last one's all of it.
        const at::Tensor flat = whole.reshape({-1});
        int64_t begin = 0;
        for (int rank = 0; rank < world.rank(); ++rank) begin += (flat.numel() - begin) / 2;
        const int64_t end =
            world.rank() + 1 == size ? flat.numel() : begin + (flat.numel() - begin) / 2;
        mine.push_back(begin < end ? histogram_of(flat.slice(0, begin, end)) : Histogram());
      }
      sum_on_root(world, mine);
      if (world.rank() == 0) sums = std::move(mine);
    });
    ASSERT_EQ(sums.size(), wholes.size());
    for (size_t i = 0; i < wholes.size(); ++i) expect_same(sums[i], reference_of(wholes[i]));
  }
}

}  // namespace
}  // namespace trireme::train
