#include "trireme/train/optimizer/elementwise.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::train {
namespace {

at::Tensor rounded(const at::Tensor& exact, const mesh::BoxRuns& part, int64_t first,
                   uint64_t seed = 1) {
  at::Tensor result = at::empty(exact.sizes(), at::kBFloat16);
  round_stochastically(exact, result, part, first, random_key(seed, "test"));
  return result;
}

// Elements of a vector from `first` on.
at::Tensor rounded(const at::Tensor& exact, int64_t first, uint64_t seed = 1) {
  const int64_t length = first + exact.numel();
  return rounded(exact, mesh::BoxRuns({{0}, {length}}, std::vector{length}), first, seed);
}

TEST(StochasticRounding, GivesANeighbourAndTheMeanOfManyIsTheValue) {
  constexpr int64_t kDraws = 200000;
  for (const float value : {1.001f, -3.14159f, 1e-20f, 65537.0f}) {
    const at::Tensor all = rounded(at::full({kDraws}, value), 0).to(at::kDouble);
    const double low = all.min().item<double>();
    const double high = all.max().item<double>();
    const double gap = high - low;
    EXPECT_LE(low, value);
    EXPECT_GE(high, value);
    EXPECT_EQ(all.eq(low).logical_or(all.eq(high)).all().item<bool>(), true) << "two neighbours";
    EXPECT_LE(gap, std::abs(value) / 128 * 1.001);
    // The deviation of a mean of n draws of two values is at most gap / (2 sqrt(n)); five of them.
    EXPECT_NEAR(all.mean().item<double>(), value, 5 * gap / (2 * std::sqrt(kDraws)));
  }
}

TEST(StochasticRounding, LeavesWhatBf16HoldsAndWhatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor exact = at::tensor({0.0f, 1.5f, -2.0f, infinity, -infinity});
  harness::assert_same_bits(rounded(exact, 3), exact.to(at::kBFloat16), "exact values");
  EXPECT_TRUE(rounded(at::full({1}, NAN), 0).isnan().item<bool>());
}

TEST(StochasticRounding, DependsOnTheIndexInTheParameterNotOnTheLayout) {
  const at::Tensor exact = (at::arange(20000, at::kFloat) * 0.1).sin();
  const at::Tensor whole = rounded(exact, 0);
  for (const int64_t cut : {0, 1, 7, 64, 4095, 4096, 19999}) {
    const at::Tensor parts = at::cat(
        {rounded(exact.narrow(0, 0, cut), 0), rounded(exact.narrow(0, cut, 20000 - cut), cut)});
    harness::assert_same_bits(parts, whole, "cut at " + std::to_string(cut));
  }
  EXPECT_FALSE(rounded(exact, 0, 2).equal(whole)) << "the key matters";
}

TEST(StochasticRounding, IsTheSameInABoxThatCutsRows) {
  const std::vector<int64_t> shape = {3, 50, 130};
  const at::Tensor exact = (at::arange(3 * 50 * 130, at::kFloat) * 0.1).sin().view(shape);
  const at::Tensor whole = rounded(exact, mesh::BoxRuns({{0, 0, 0}, shape}, shape), 0);
  for (const mesh::Box& box :
       {mesh::Box{{0, 0, 7}, {3, 50, 65}}, mesh::Box{{1, 3, 129}, {2, 40, 1}},
        mesh::Box{{0, 49, 0}, {3, 1, 130}}, mesh::Box{{2, 0, 0}, {1, 50, 130}}}) {
    const auto part_of = [&](at::Tensor tensor) {
      for (int64_t d = 0; d < 3; ++d) tensor = tensor.narrow(d, box.offset[d], box.size[d]);
      return tensor.contiguous();
    };
    const at::Tensor part = part_of(exact), expected = part_of(whole);
    const mesh::BoxRuns runs(box, shape);
    harness::assert_same_bits(rounded(part, runs, 0), expected, "a box");
    const int64_t half = part.numel() / 2;
    const at::Tensor rest = part.view({-1}).narrow(0, half, part.numel() - half);
    harness::assert_same_bits(rounded(rest, runs, half),
                              expected.view({-1}).narrow(0, half, part.numel() - half), "a piece");
  }
}

}  // namespace
}  // namespace trireme::train
