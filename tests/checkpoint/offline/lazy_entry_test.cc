#include "trireme/checkpoint/offline/saved_tensors.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/chunk/chunk.h"

namespace trireme::checkpoint {
namespace {

TEST(LazyEntry, IsMadeOnceWhenItIsWritten) {
  const harness::TemporaryFolder root;
  const mesh::Layout layout({5, 2}, {{"shard", 2}}, {mesh::Placement::sharded(0)});
  harness::run_ranks(2, [&](comm::Communicator& world) {
    int calls = 0;
    const Entry entry =
        lazy_entry("w", at::kFloat, layout, world.rank(), [&](const mesh::Box& part) {
          EXPECT_EQ(part, layout.local_box(world.rank()));
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

TEST(LazyEntry, OfALargeBoxIsMadeInBlocksThatEndWhereChunksDo) {
  constexpr int64_t kRowsOfChunk = 4;
  constexpr int64_t kWidth = kChunkBytes / kRowsOfChunk / sizeof(int64_t);
  std::vector<mesh::Range> made;
  const mesh::Box box{{6, 0}, {300, kWidth}};
  const auto tensor = lazy_box("w", box, at::kLong, [&](const mesh::Box& part) {
    made.push_back({part.offset[0], part.size[0]});
    return at::arange(part.offset[0], part.offset[0] + part.size[0]).unsqueeze(1);  // one column
  });
  EXPECT_TRUE(tensor->goes_by_rows());
  int64_t next = 0;
  for (const int64_t end : {2, 6, 100, 122, 126, 300}) {
    const at::Tensor rows = tensor->read_rows(next, end);
    EXPECT_EQ(rows.size(0), end - next);
    EXPECT_EQ(rows[0][0].item<int64_t>(), 6 + next);
    EXPECT_EQ(rows[-1][0].item<int64_t>(), 6 + end - 1);
    next = end;
  }
  EXPECT_EQ(made, (std::vector<mesh::Range>{{6, 122}, {128, 128}, {132, 174}}));
  EXPECT_EQ(tensor->read().size(0), 300);
}

TEST(LazyEntry, OfABoxWithLargerRowsIsMadeWhole) {
  for (const mesh::Box& box : {mesh::Box{{0, 0}, {2, kChunkBytes + 1}}, mesh::Box{{}, {}}}) {
    const auto tensor = lazy_box("w", box, at::kByte, [&](const mesh::Box& part) {
      EXPECT_EQ(part, box);
      return at::zeros({1}, at::kByte);
    });
    EXPECT_FALSE(tensor->goes_by_rows());
    EXPECT_EQ(tensor->read().numel(), 1);
  }
}

TEST(LazyEntry, IsMadeByTheRowsThatAreAskedForOrWhole) {
  const mesh::Box box{{6, 0}, {4, kChunkBytes + 1}};
  std::vector<mesh::Box> made;
  const auto make = [&](const mesh::Box& part) {
    made.push_back(part);
    return at::arange(part.offset[0], part.offset[0] + part.size[0]).unsqueeze(1);  // one column
  };
  const auto rows = lazy_box("w", box, at::kByte, make, LazyParts::kRows);
  EXPECT_TRUE(rows->goes_by_rows());
  for (const int64_t begin : {0, 1, 2}) {  // a chunk may end within a row
    const at::Tensor two = rows->read_rows(begin, begin + 2);
    EXPECT_EQ(two[0][0].item<int64_t>(), 6 + begin);
    EXPECT_EQ(two[1][0].item<int64_t>(), 7 + begin);
    EXPECT_EQ(made.back(), (mesh::Box{{6 + begin, 0}, {2, kChunkBytes + 1}}));
  }
  EXPECT_EQ(made.size(), 3u);
  const mesh::Box short_rows{{0, 0}, {300, 16}};
  const auto whole = lazy_box("w", short_rows, at::kByte, make, LazyParts::kWhole);
  EXPECT_FALSE(whole->goes_by_rows());
  EXPECT_EQ(whole->read().size(0), 300);
  EXPECT_EQ(made.back(), short_rows);
}

TEST(LazyEntry, CannotBeLoaded) {
  EXPECT_THROW(lazy_box("w", {{0}, {1}}, at::kFloat, {})->write({}), InternalError);
  const harness::TemporaryFolder root;
  const Global w{"w", random_tensor("w", {3}, at::kFloat), mesh::Layout({3}, {})};
  save_all(root.path(), 1, {&w, 1}, 1);
  harness::run_ranks(1, [&](comm::Communicator& world) {
    std::vector<Entry> entries{
        lazy_entry("w", at::kFloat, w.layout, 0, [&](const mesh::Box&) { return w.tensor; })};
    EXPECT_THROW(load(root / "step-000001", entries, world), InternalError);
  });
}

}  // namespace
}  // namespace trireme::checkpoint
