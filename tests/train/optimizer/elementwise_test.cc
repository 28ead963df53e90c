#include "trireme/train/optimizer/elementwise.h"

#include <atomic>
#include <mutex>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

UpdateItem item_of(at::IntArrayRef shape, double weight_decay, double rate_scale,
                   at::ScalarType gradient_dtype = at::kFloat) {
  const int64_t numel = at::zeros(shape).numel();
  return {.weights = at::arange(numel, at::kFloat).view(shape),
          .gradient = at::ones(shape, gradient_dtype),
          .state = {at::zeros(shape)},
          .weight_decay = weight_decay,
          .rate_scale = rate_scale};
}

TEST(UpdateElementwise, ReachesEveryElementOnceAndNeverMixesSettings) {
  const std::vector<UpdateItem> items = {
      item_of({300, 1000}, 0.1, 1), item_of({7}, 0, 1),
      item_of({0, 3}, 0, 2),        item_of({1}, 0.1, 1),
      item_of({64, 1024}, 0, 2),    item_of({65537}, 0, 1, at::kBFloat16)};
  std::mutex mutex;
  std::set<std::pair<double, double>> seen;
  update_elementwise(items, [&](PieceBatch& batch) {
    ASSERT_EQ(batch.state.size(), 1u);
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      ASSERT_EQ(batch.gradients[i].scalar_type(), at::kFloat);
      ASSERT_EQ(batch.weights[i].storage_offset() % 64, 0);
      batch.state[0][i].add_(batch.weights[i]).add_(batch.gradients[i]);
    }
    const std::lock_guard lock(mutex);
    seen.insert({batch.weight_decay, batch.rate_scale});
  });
  EXPECT_EQ(seen, (std::set<std::pair<double, double>>{{0.1, 1}, {0, 1}, {0, 2}}));
  for (const UpdateItem& item : items) {
    harness::assert_same_bits(item.state[0], item.weights + 1, "state");
  }
}

TEST(UpdateElementwise, NothingToDoCallsNothing) {
  std::atomic<int> calls = 0;
  update_elementwise({}, [&](PieceBatch&) { ++calls; });
  const std::vector<UpdateItem> empty = {item_of({0}, 0, 1)};
  update_elementwise(empty, [&](PieceBatch&) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(UpdateElementwise, WeightsThatRecordGradientsAreUpdatedInPlace) {
  UpdateItem item = item_of({100000}, 0, 1);
  item.weights.requires_grad_();
  update_elementwise(std::span(&item, 1), [](PieceBatch& batch) {
    for (const at::Tensor& weights : batch.weights) weights.zero_();
  });
  EXPECT_EQ(item.weights.abs().max().item<float>(), 0);
}

TEST(UpdateElementwise, AFailureReachesTheCaller) {
  const std::vector<UpdateItem> items = {item_of({300000}, 0, 1)};
  EXPECT_THROW(update_elementwise(items, [](PieceBatch&) { throw Error("kernel"); }), Error);
}

}  // namespace
}  // namespace trireme::train
