#include "trireme/checkpoint/write/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Held = std::map<std::string, TensorRecord>;

// What each rank of a world holds when every tensor has this layout.
std::vector<Held> held_under(const std::map<std::string, mesh::Layout>& layouts, int world_size) {
  std::vector<Held> held_by(world_size);
  for (const auto& [name, layout] : layouts) {
    for (int rank = 0; rank < world_size; ++rank) {
      held_by[rank][name] = {.dtype = at::kFloat,
                             .shape = layout.shape(),
                             .axes = layout.axes(),
                             .placements = layout.placements(),
                             .pieces = {{.box = layout.local_box(rank % layout.num_ranks())}}};
    }
  }
  return held_by;
}

std::map<std::string, int64_t> bytes_by_file(const Held& plan) {
  std::map<std::string, int64_t> bytes;
  for (const auto& [name, record] : plan) {
    for (const Piece& piece : record.pieces) bytes[piece.file] += piece.box.numel() * 4;
  }
  return bytes;
}

TEST(SavePlan, NamesFilesByRankAndWorld) {
  EXPECT_EQ(shard_name(3, 16), "rank-003-of-016.safetensors");
}

TEST(SavePlan, ReplicasAreWrittenOnceAndSpreadEvenly) {
  std::map<std::string, mesh::Layout> layouts;
  for (int i = 0; i < 16; ++i)
    layouts.emplace("w" + std::to_string(i),
                    mesh::Layout({100 + i}, {{"data", 4}}, {mesh::Placement::replicated()}));
  const Held plan = plan_save(held_under(layouts, 4));
  for (const auto& [name, record] : plan) EXPECT_EQ(record.pieces.size(), 1u) << name;
  const auto bytes = bytes_by_file(plan);
  ASSERT_EQ(bytes.size(), 4u);
  const int64_t share = (16 * 100 + 120) * 4 / 4;
  // No file exceeds its share by more than the smallest tensor.
  for (const auto& [file, size] : bytes) EXPECT_LE(size, share + 400) << file;
}

TEST(SavePlan, ShardsStayWhereTheyAreAndReplicasFillUpTheRest) {
  // Rank 1 alone holds "big"; "w", which both hold, goes to rank 0.
  std::vector<Held> held_by = held_under({{"w", mesh::Layout({10}, {})}}, 2);
  held_by[1]["big"] = {.shape = {100}, .pieces = {{.box = {{0}, {100}}}}};
  const Held plan = plan_save(held_by);
  EXPECT_EQ(plan.at("big").pieces[0].file, shard_name(1, 2));
  EXPECT_EQ(plan.at("w").pieces[0].file, shard_name(0, 2));
}

TEST(SavePlan, EmptyShardsAreLeftOut) {
  const mesh::Layout layout({2, 3}, {{"tensor", 4}}, {mesh::Placement::sharded(0)});
  const Held plan = plan_save(held_under({{"w", layout}}, 4));
  ASSERT_EQ(plan.at("w").pieces.size(), 2u);
  EXPECT_EQ(plan.at("w").pieces[1].box, (mesh::Box{{1, 0}, {1, 3}}));
}

TEST(SavePlan, ATensorThatIsNotWholeIsRefused) {
  const mesh::Layout layout({5}, {{"tensor", 2}}, {mesh::Placement::sharded(0)});
  auto held_by = held_under({{"w", layout}}, 2);
  held_by[1].clear();
  EXPECT_THAT(checkpoint_error([&] { plan_save(held_by); }),
              AllOf(HasSubstr("do not hold \"w\" exactly once"),
                    HasSubstr("element [3] lies in 0 pieces")));
}

// As many elements as the tensor has, but not each of them once.
TEST(SavePlan, BoxesThatOverlapAreRefused) {
  auto held_by = held_under({{"w", mesh::Layout({5}, {})}}, 2);
  held_by[0]["w"].pieces[0].box = {{0}, {3}};
  held_by[1]["w"].pieces[0].box = {{1}, {2}};
  EXPECT_THAT(checkpoint_error([&] { plan_save(held_by); }),
              HasSubstr("element [1] lies in 2 pieces, expected 1"));
}

TEST(SavePlan, RanksThatDisagreeAreRefused) {
  auto held_by = held_under({{"w", mesh::Layout({5}, {})}}, 2);
  held_by[1]["w"].dtype = at::kHalf;
  EXPECT_THAT(checkpoint_error([&] { plan_save(held_by); }),
              HasSubstr("rank 1 holds \"w\" with another dtype"));
}

}  // namespace
}  // namespace trireme::checkpoint
