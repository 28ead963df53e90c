#include "trireme/train/optimizer/update_rule.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

// As AdamW's in fp32.
ShardSize shard_of(int64_t elements) { return {elements, {4 * elements, 4 * elements}}; }

int64_t bytes_of(const UpdateChunk& chunk, int64_t item_bytes) {
  int64_t total = 0;
  for (const UpdatePiece& piece : chunk) total += (piece.count * item_bytes + 4095) / 4096 * 4096;
  return total;
}

TEST(UpdateChunks, SmallShardsShareAChunk) {
  const std::vector<ShardSize> shards = {shard_of(10), shard_of(20), shard_of(0), shard_of(30)};
  EXPECT_EQ(cut_into_chunks(shards, {}),
            (std::vector<UpdateChunk>{{{0, 0, 10}, {1, 0, 20}, {3, 0, 30}}}));
  EXPECT_EQ(cut_into_chunks(shards, {.elements = 30}),
            (std::vector<UpdateChunk>{{{0, 0, 10}, {1, 0, 20}}, {{3, 0, 30}}}));
}

TEST(UpdateChunks, AShardThatMayNotBeCutIsWholeHoweverLarge) {
  const std::vector<ShardSize> shards = {shard_of(10), shard_of(9000), shard_of(30)};
  EXPECT_EQ(cut_into_chunks(shards, {.elements = 4096}),
            (std::vector<UpdateChunk>{{{0, 0, 10}}, {{1, 0, 9000}}, {{2, 0, 30}}}));
  EXPECT_EQ(cut_into_chunks(shards, {.bytes = 1}),
            (std::vector<UpdateChunk>{{{0, 0, 10}}, {{1, 0, 9000}}, {{2, 0, 30}}}));
}

TEST(UpdateChunks, AShardIsCutWhereEveryStateEndsAtAUnit) {
  const std::vector<ShardSize> shards = {shard_of(9000)};
  EXPECT_EQ(cut_into_chunks(shards, {.elements = 4100, .may_cut = true}),
            (std::vector<UpdateChunk>{{{0, 0, 4096}}, {{0, 4096, 4096}}, {{0, 8192, 808}}}));
}

TEST(UpdateChunks, EveryElementIsInOnePieceAndChunksKeepTheLimit) {
  for (const int64_t item_bytes : {4, 8}) {
    for (const size_t num_states : {1, 2, 3}) {
      for (const int64_t limit : {24576, 65536, 200000, 1 << 20}) {
        std::vector<ShardSize> shards;
        for (const int64_t elements : {1, 64, 5000, 0, 1023, 1024, 1025, 200037, 7, 100000}) {
          shards.push_back({elements, std::vector<int64_t>(num_states, item_bytes * elements)});
        }
        std::vector<int64_t> next(shards.size(), 0);
        for (const UpdateChunk& chunk :
             cut_into_chunks(shards, {.bytes = limit, .may_cut = true})) {
          EXPECT_LE(bytes_of(chunk, item_bytes) * static_cast<int64_t>(num_states), limit);
          for (const UpdatePiece& piece : chunk) {
            EXPECT_EQ(piece.first, next[piece.shard]);
            EXPECT_EQ(piece.first % 64, 0);
            next[piece.shard] += piece.count;
          }
        }
        for (size_t i = 0; i < shards.size(); ++i) EXPECT_EQ(next[i], shards[i].elements);
      }
    }
  }
}

TEST(UpdateChunks, ALimitBelowOneUnitAStateStillGoesOn) {
  const std::vector<ShardSize> shards = {shard_of(3000)};
  EXPECT_EQ(cut_into_chunks(shards, {.bytes = 1, .may_cut = true}),
            (std::vector<UpdateChunk>{{{0, 0, 1024}}, {{0, 1024, 1024}}, {{0, 2048, 952}}}));
}

TEST(UpdateChunks, RulesWithoutStatesAndStatesWithoutElements) {
  const std::vector<ShardSize> shards = {{5000, {}}, {0, {8}}, {0, {0}}};
  EXPECT_EQ(cut_into_chunks(shards, {.elements = 4096, .may_cut = true}),
            (std::vector<UpdateChunk>{{{0, 0, 4096}}, {{0, 4096, 904}, {1, 0, 0}}}));
}

}  // namespace
}  // namespace trireme::train
