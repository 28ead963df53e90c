#include "trireme/comm/numbers/row_code.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::comm {
namespace {

TEST(RowCode, TheLargestOfARowIsTheLargestWholeNumber) {
  const at::Tensor rows = at::tensor({1.f, -4.f, 3.f, 0.f, 0.f, 0.f}).view({2, 3});
  const at::Tensor scales = scales_of_largest(rows, 127);
  harness::assert_same_bits(scales, at::tensor({4.f / 127, 0.f}).view({2, 1}), "scales");
  harness::assert_same_bits(nearest_whole(rows, scales, 127).abs(),
                            at::tensor({32.f, 127.f, 95.f, 0.f, 0.f, 0.f}).view({2, 3}), "whole");
}

TEST(RowCode, HalvesGoToTheEvenNumberAndNoNumberPassesTheLargest) {
  const at::Tensor rows = at::tensor({0.5f, 1.5f, 2.5f, -9.f}).view({1, 4});
  harness::assert_same_bits(nearest_whole(rows, at::ones({1, 1}), 7),
                            at::tensor({0.f, 2.f, 2.f, -7.f}).view({1, 4}), "whole");
}

TEST(RowCode, TheNormIsOverTheNumbersThatThereAre) {
  const at::Tensor rows = at::tensor({3.f, -4.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}).view({2, 4});
  const at::Tensor counts = at::tensor({2, 0}, at::kLong).view({2, 1});
  const at::Tensor scales = scales_of_norm(rows, counts);
  EXPECT_EQ(scales.scalar_type(), at::kDouble);
  EXPECT_EQ(scales[0].item<double>(), std::sqrt(12.5));
  EXPECT_EQ(scales[1].item<double>(), 0);
}

TEST(RowCode, LargeNumbersDoNotOverflow) {
  const float large = std::numeric_limits<float>::max();
  const at::Tensor rows = at::full({1, 4}, large);
  EXPECT_EQ(scales_of_norm(rows, at::full({1, 1}, 4)).item<double>(), double{large});
}

}  // namespace
}  // namespace trireme::comm
