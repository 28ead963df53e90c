// Checkpoints of tensors whose layouts lie inside others: parts of a block each.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::checkpoint {
namespace {

// Two tensor ranks, each of whose blocks two ranks share out at cuts of their own; and a vector
// that both tensor ranks have whole, shared out at different cuts.
TEST(Checkpoint, BlocksThatAreCutEachAtItsOwnPlacesMakeUpTheWhole) {
  const harness::TemporaryFolder root;
  const at::Tensor matrix = at::arange(15, at::kFloat).sin().view({5, 3});
  const at::Tensor vector = at::arange(6, at::kFloat).cos();
  const mesh::Layout rows({5, 3}, {{"tensor", 2}}, {mesh::Placement::sharded(0, {0, 3, 5})});
  const mesh::Layout whole({6}, {{"tensor", 2}});
  const std::vector<std::vector<int64_t>> row_cuts = {{0, 1, 3}, {0, 2, 2}};
  const std::vector<std::vector<int64_t>> vector_cuts = {{0, 2, 6}, {0, 5, 6}};
  const auto entries_of = [&](int world_rank) {
    const int shard = world_rank / 2, tensor = world_rank % 2;
    const auto at = static_cast<size_t>(tensor);
    const std::vector<mesh::Axis> axes = {{"shard", 2}};
    const mesh::Box block = rows.local_box(tensor);
    const std::vector<mesh::Layout> layouts = {
        mesh::Layout(block.size, axes, {mesh::Placement::sharded(0, row_cuts[at])})
            .inside(rows, tensor),
        mesh::Layout({6}, axes, {mesh::Placement::sharded(0, vector_cuts[at])})
            .inside(whole, tensor)};
    std::vector<Entry> entries;
    for (size_t i = 0; i < 2; ++i) {
      const mesh::Box box = layouts[i].whole_box(shard);
      const at::Tensor part =
          (i == 0 ? matrix : vector).narrow(0, box.offset[0], box.size[0]).clone();
      entries.push_back({.name = i == 0 ? "matrix" : "vector",
                         .local = part,
                         .layout = layouts[i],
                         .rank = shard});
    }
    return entries;
  };
  harness::run_ranks(4, [&](comm::Communicator& world) {
    std::vector<Entry> entries = entries_of(world.rank());
    save(root.path(), 1, entries, "{}", world, {.fsync = false});
    for (Entry& entry : entries) entry.local.zero_();
    load(root / "step-000001", entries, world);
    const std::vector<Entry> expected = entries_of(world.rank());
    for (size_t i = 0; i < 2; ++i)
      harness::assert_same_bits(entries[i].local, expected[i].local, entries[i].name);
  });
  harness::assert_same_bits(load_tensor(root / "step-000001", "matrix"), matrix, "matrix");
  harness::assert_same_bits(load_tensor(root / "step-000001", "vector"), vector, "vector");
  EXPECT_EQ(inspect(root / "step-000001").tensors[0].layout,
            "tensor=2 sharded(0 at 0,3,5), shard=2 sharded(0 at 0,1,3)");
}

}  // namespace
}  // namespace trireme::checkpoint
