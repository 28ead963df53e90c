#include "trireme/train/offload/state_store.h"

#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/train/offload/stores.h"

namespace trireme::train {
namespace {

TEST(MemoryStore, ChunksAreViewsOfTheTensors) {
  const StatePlan plan = make_plan();
  MemoryStore store(plan, at::kCPU);
  const checkpoint::Entry cut = describe(store, plan, 0);
  const checkpoint::Entry whole = describe(store, plan, 3);
  EXPECT_EQ(cut.offloaded, nullptr);
  store.visit(all_chunks(plan), [&](size_t chunk, std::span<const at::Tensor> pieces) {
    ASSERT_EQ(pieces.size(), plan.chunks[chunk].size());
    if (chunk != 1) return;
    EXPECT_EQ(pieces[0].const_data_ptr<float>(), cut.local.const_data_ptr<float>() + 2048);
    EXPECT_EQ(pieces[0].sizes(), at::IntArrayRef({1024}));
    EXPECT_TRUE(pieces[1].is_same(whole.local));
    EXPECT_EQ(pieces[1].sizes(), at::IntArrayRef({2, 2, 5}));
  });
}

TEST(MemoryStore, IsZeroAtFirstAndKeepsChanges) {
  const StatePlan plan = make_plan();
  MemoryStore store(plan, at::kCPU);
  for (const at::Tensor& tensor : contents(store, plan)) EXPECT_FALSE(tensor.any().item<bool>());
  change(store, all_chunks(plan));
  const auto tensors = contents(store, plan);
  EXPECT_TRUE(tensors[0]
                  .view(-1)
                  .narrow(0, 2048, 1024)
                  .equal(at::zeros({1024}).add_(at::arange(1024, at::kFloat), 0.01).add_(10.0)));
  EXPECT_EQ(tensors[3].scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace trireme::train
