#include "trireme/train/optimizer/adamw_pass.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::train {
namespace {

using harness::assert_close;
using harness::assert_same_bits;

constexpr AdamWStep kStep{.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .step = 3};

UpdateItem item_of(int64_t count, bool rounds) {
  at::manual_seed(static_cast<uint64_t>(count));
  return {.weights = at::randn({count}),
          .gradient = at::randn({count}).to(at::kBFloat16),
          .state = {at::randn({count}), at::rand({count})},
          .weight_decay = 0.1,
          .gradient_factor = 0.3,
          .rounded = rounds ? at::zeros({count}, at::kBFloat16) : at::Tensor()};
}

UpdateItem copy_of(const UpdateItem& item) {
  UpdateItem copy = item;
  copy.weights = item.weights.clone();
  for (at::Tensor& state : copy.state) state = state.clone();
  if (copy.rounded.defined()) copy.rounded = item.rounded.clone();
  return copy;
}

// Ten operations in fp32 of numbers of at most 10.
TEST(AdamWPass, IsTheFormulaAndRoundsItsResult) {
  for (const int64_t count : {1, 15, 1000, 100'000}) {
    for (const bool rounds : {false, true}) {
      const UpdateItem item = item_of(count, rounds), before = copy_of(item);
      ASSERT_TRUE(has_adamw_pass(item));
      adamw_pass(item, kStep);
      const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
      const at::Tensor g = wide(before.gradient) * 0.3;
      const at::Tensor m = wide(before.state[0]) * 0.9 + g * 0.1;
      const at::Tensor v = wide(before.state[1]) * 0.95 + g.square() * 0.05;
      const at::Tensor root = (v / (1 - std::pow(0.95, 3))).sqrt() + 1e-8;
      const at::Tensor w =
          wide(before.weights) * (1 - 0.01 * 0.1) - m / (1 - std::pow(0.9, 3)) / root * 0.01;
      assert_close(wide(item.state[0]), m, 4 * 0x1p-24, 0, "exp_avg");
      assert_close(wide(item.state[1]), v, 4 * 0x1p-24, 0, "exp_avg_sq");
      assert_close(wide(item.weights), w, 10 * 0x1p-24, 0, "weights");
      if (rounds) assert_same_bits(item.rounded, item.weights.to(at::kBFloat16), "rounded");
    }
  }
}

TEST(AdamWPass, NeitherThreadsNorCutsChangeBits) {
  const UpdateItem whole = item_of(200'003, true);
  const UpdateItem threads = copy_of(whole), parts = copy_of(whole);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  adamw_pass(whole, kStep);
  at::set_num_threads(3);
  adamw_pass(threads, kStep);
  at::set_num_threads(before);
  for (int64_t first = 0, size = 1; first < 200'003; first += size, size *= 7) {
    size = std::min(size, 200'003 - first);
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, size); };
    UpdateItem item = parts;
    item.weights = part(parts.weights);
    item.gradient = part(parts.gradient);
    item.state = {part(parts.state[0]), part(parts.state[1])};
    item.rounded = part(parts.rounded);
    adamw_pass(item, kStep);
  }
  for (const UpdateItem& other : {threads, parts}) {
    assert_same_bits(other.weights, whole.weights, "weights");
    assert_same_bits(other.state[0], whole.state[0], "exp_avg");
    assert_same_bits(other.state[1], whole.state[1], "exp_avg_sq");
    assert_same_bits(other.rounded, whole.rounded, "rounded");
  }
}

TEST(AdamWPass, IsForBf16GradientsOfFp32Weights) {
  UpdateItem item = item_of(4, false);
  item.rounded = at::zeros({4}, at::kHalf);
  EXPECT_FALSE(has_adamw_pass(item));
  item = item_of(4, true);
  item.gradient = item.gradient.to(at::kFloat);
  EXPECT_FALSE(has_adamw_pass(item));
}

}  // namespace
}  // namespace trireme::train
