#include "trireme/parallel/embedding/sums/square_tree.h"

#include <bit>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"
#include "trireme/parallel/embedding/sums/sample_tree.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// Of columns [0, width), as the tree is defined: a node's left half is full.
template <typename number, typename scalar>
number sum_below(const scalar* values, int64_t width) {
  if (width == 1) return static_cast<number>(*values) * static_cast<number>(*values);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(width - 1)));
  const number low = sum_below<number>(values, left);
  return low + sum_below<number>(values + left, width - left);
}

at::Tensor rows_of(int64_t n, int64_t width, at::ScalarType dtype) {
  return at::arange(n * width, at::kDouble).mul(1.7).sin().mul(3).to(dtype).view({n, width});
}

const std::vector<int64_t> kWhole{0};

TEST(SquareTree, SumsPairsThenPairsOfPairs) {
  for (int64_t width = 1; width <= 700; width += width < 300 ? 1 : 37) {
    const at::Tensor single = rows_of(2, width, at::kFloat), twice = rows_of(2, width, at::kDouble);
    const auto* const floats = single.const_data_ptr<float>() + width;
    const auto* const doubles = twice.const_data_ptr<double>() + width;
    EXPECT_EQ(sum_squares<float>(floats, width), (sum_below<float>(floats, width))) << width;
    EXPECT_EQ(sum_squares<double>(doubles, width), (sum_below<double>(doubles, width))) << width;
    EXPECT_EQ(sum_squares<double>(floats, width), (sum_below<double>(floats, width))) << width;
    EXPECT_EQ(squares_of(single, {0, width}, kWhole, at::kDouble)[0][1].item<double>(),
              (sum_below<double>(floats, width)));
  }
}

TEST(SquareTree, HasTheBitsOfWholeRowsForAnySplit) {
  Draw draw(3);
  for (int round = 0; round < 200; ++round) {
    const int64_t width = 1 + draw.below<int64_t>(round % 2 == 0 ? 12 : 400), n = draw.below(4);
    const at::ScalarType from = draw.below(2) == 0 ? at::kFloat : at::kDouble;
    const at::ScalarType to = draw.below(2) == 0 ? from : at::kDouble;
    const at::Tensor whole = rows_of(n, width, from);
    const std::vector<int64_t> cuts = draw_cuts(draw, width, 1 + draw.below(5));
    std::vector<int64_t> begins;
    std::vector<at::Tensor> sums;
    for (size_t r = 0; r + 1 < cuts.size(); ++r) {
      const mesh::Range columns{cuts[r], cuts[r + 1] - cuts[r]};
      const std::vector<int64_t> own = subtrees_of(cuts[r], cuts[r + 1]);
      const at::Tensor part = whole.narrow(1, columns.offset, columns.size).contiguous();
      for (const at::Tensor& sum : squares_of(part, columns, own, to).unbind(0))
        sums.push_back(sum);
      begins.insert(begins.end(), own.begin(), own.end());
    }
    join_subtrees(begins, sums);
    assert_same_bits(sums[0], squares_of(whole, {0, width}, kWhole, to)[0], "squares");
  }
}

TEST(SquareTree, KeepsWhatIsNotFinite) {
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    const at::Tensor row = at::ones({1, 37}, at::kDouble);
    row[0][36] = bad;
    EXPECT_FALSE(at::isfinite(squares_of(row, {0, 37}, kWhole, at::kDouble)).item<bool>());
  }
}

}  // namespace
}  // namespace trireme::parallel
