#include "trireme/checkpoint/offline/lazy_entry.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::checkpoint {
namespace {

TEST(LazyEntry, IsMadeOnceWhenItIsWritten) {
  const harness::TemporaryFolder root;
  const mesh::Layout layout({5, 2}, {{"shard", 2}}, {mesh::Placement::sharded(0)});
  harness::run_ranks(2, [&](comm::Communicator& world) {
    int calls = 0;
    const Entry entry = lazy_entry("w", at::kFloat, layout, world.rank(), [&] {
      ++calls;
      return at::full({3 - world.rank(), 2}, world.rank(), at::kFloat);
    });
    EXPECT_EQ(calls, 0);
    save(root.path(), 1, {&entry, 1}, "{}", world, kFast);
    EXPECT_EQ(calls, 1);
  });
  const at::Tensor whole = load_tensor(root / "step-000001", "w");
  EXPECT_EQ(whole.sum().item<float>(), 4);
  EXPECT_EQ(whole[2][1].item<float>(), 0);
  EXPECT_EQ(whole[3][0].item<float>(), 1);
}

TEST(LazyEntry, CannotBeLoaded) {
  EXPECT_THROW(lazy_tensor("w", [] { return at::Tensor(); })->write({}), InternalError);
  const harness::TemporaryFolder root;
  const Global w{"w", random_tensor("w", {3}, at::kFloat), mesh::Layout({3}, {})};
  save_all(root.path(), 1, {&w, 1}, 1);
  harness::run_ranks(1, [&](comm::Communicator& world) {
    std::vector<Entry> entries{lazy_entry("w", at::kFloat, w.layout, 0, [&] { return w.tensor; })};
    EXPECT_THROW(load(root / "step-000001", entries, world), InternalError);
  });
}

}  // namespace
}  // namespace trireme::checkpoint
