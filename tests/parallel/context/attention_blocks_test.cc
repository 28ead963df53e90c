#include "trireme/parallel/context/attention_blocks.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/parallel/context/attention_oracle.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using Blocks = std::vector<AttentionBlock>;

constexpr SequenceOrder kOrders[] = {SequenceOrder::kContiguous, SequenceOrder::kZigZag};

// The scores of a block that are not masked.
int64_t num_scores(const AttentionBlock& block) {
  const int64_t queries = block.queries.size;
  const int64_t of_sequence =
      block.reach.is_causal ? queries * (queries + 1) / 2 : queries * block.keys.size;
  return block.sequences.size * of_sequence;
}

int64_t work_of(const SequenceSplit& split, int rank) {
  const AttentionMask mask(split, 1);
  int64_t sum = 0;
  for (int key_rank = 0; key_rank < split.num_ranks(); ++key_rank) {
    for (const AttentionBlock& block : mask.blocks(rank, key_rank)) sum += num_scores(block);
  }
  return sum;
}

TEST(AttentionMask, ZigZagReadsHalfOfEachOtherPiece) {
  const AttentionMask mask(SequenceSplit(16, 2), 3);  // rank 0: 0-3 and 12-15; rank 1: 4-11
  EXPECT_EQ(mask.blocks(1, 0), (Blocks{{{0, 3}, {0, 8}, {0, 4}}}));
  EXPECT_EQ(mask.blocks(0, 1), (Blocks{{{0, 3}, {4, 4}, {0, 8}}}));
  EXPECT_EQ(mask.blocks(0, 0), (Blocks{{{0, 3}, {0, 8}, {0, 8}, {true}}}));
}

TEST(AttentionMask, PiecesThatLieAheadAreLeftOut) {
  const AttentionMask mask(SequenceSplit(16, 4, SequenceOrder::kContiguous), 1);
  EXPECT_TRUE(mask.blocks(0, 3).empty());
  EXPECT_EQ(mask.blocks(3, 0), (Blocks{{{0, 1}, {0, 4}, {0, 4}}}));
}

TEST(AttentionMask, DocumentsInCommonAreAllThatIsComputed) {
  const at::Tensor documents_BT =
      at::tensor(std::vector<int64_t>{5, 5, 5, 7, 7, 7, 7, 7}).view({1, 8});
  const AttentionMask mask(SequenceSplit(8, 4, SequenceOrder::kContiguous), 1,
                           {.documents_BT = documents_BT});
  EXPECT_EQ(mask.blocks(1, 0), (Blocks{{{0, 1}, {0, 1}, {0, 2}}}));  // token 2 reads 0 and 1
  EXPECT_TRUE(mask.blocks(2, 0).empty());
  EXPECT_EQ(mask.blocks(3, 1), (Blocks{{{0, 1}, {0, 2}, {1, 1}}}));  // 6 and 7 read 3
}

TEST(AttentionMask, WithoutCausalityEachPieceIsOneBlock) {
  for (const SequenceOrder order : kOrders) {
    const AttentionMask mask(SequenceSplit(16, 2, order), 3, {.causal = false});
    for (int q = 0; q < 2; ++q) {
      for (int k = 0; k < 2; ++k)
        EXPECT_EQ(mask.blocks(q, k), (Blocks{{{0, 3}, {0, 8}, {0, 8}}})) << q << " reads " << k;
    }
  }
  const AttentionMask few(SequenceSplit(2, 3, SequenceOrder::kContiguous), 1, {.causal = false});
  EXPECT_EQ(few.blocks(0, 1), (Blocks{{{0, 1}, {0, 1}, {0, 1}}}));
  EXPECT_TRUE(few.blocks(0, 2).empty());  // rank 2 has no token
  EXPECT_TRUE(few.blocks(2, 0).empty());
}

// How often each score of the piece is computed.
at::Tensor times_computed(const AttentionMask& mask, const SequenceSplit& split, int64_t batch,
                          int query_rank, int key_rank) {
  at::Tensor count =
      at::zeros({batch, split.num_tokens(query_rank), split.num_tokens(key_rank)}, at::kLong);
  for (const AttentionBlock& block : mask.blocks(query_rank, key_rank)) {
    EXPECT_GT(std::min({block.sequences.size, block.queries.size, block.keys.size}), 0);
    const at::Tensor ones = at::ones({block.queries.size, block.keys.size}, at::kLong);
    count.narrow(0, block.sequences.offset, block.sequences.size)
        .narrow(1, block.queries.offset, block.queries.size)
        .narrow(2, block.keys.offset, block.keys.size)
        .add_(block.reach.is_causal ? ones.tril()
              : block.reach.edge    ? ones.triu(*block.reach.edge)
                                    : ones);
    // No query of an edge is without a key.
    if (block.reach.edge) EXPECT_LT(block.queries.size - 1 + *block.reach.edge, block.keys.size);
  }
  return count;
}

// Every score that causality and documents allow is in one block, and no other is.
void expect_each_score_once(const AttentionCase& c) {
  const AttentionReach reach = make_data(c, at::kDouble).reach;
  const SequenceSplit split(c.T, c.ranks, c.order);
  const AttentionMask mask(split, c.B, reach);
  at::Tensor expected = at::ones({c.B, c.T, c.T}, at::kLong);
  if (c.causal) expected.tril_();
  if (c.window > 0) expected.triu_(1 - c.window);
  if (const at::Tensor& d = reach.documents_BT; d.defined())
    expected *= d.unsqueeze(2).eq(d.unsqueeze(1)).to(at::kLong);
  for (int q = 0; q < c.ranks; ++q) {
    for (int k = 0; k < c.ranks; ++k) {
      const at::Tensor piece =
          expected.index_select(1, split.positions(q)).index_select(2, split.positions(k));
      ASSERT_TRUE(at::equal(times_computed(mask, split, c.B, q, k), piece))
          << text_of(c) << ": " << q << " reads " << k;
    }
  }
}

TEST(AttentionMask, BlocksCoverWhatIsReadOnce) {
  for (const SequenceOrder order : kOrders) {
    for (const bool has_documents : {false, true}) {
      for (const bool causal : {false, true}) {
        for (const int64_t T : {1, 2, 7, 33, 300}) {
          for (const int ranks : {1, 2, 3, 5})
            expect_each_score_once({ranks, 2, T, 1, 1, 1, order, has_documents, 1, causal});
        }
      }
    }
  }
}

TEST(AttentionMask, BlocksOfAWindowCoverWhatIsReadOnce) {
  for (const SequenceOrder order : kOrders) {
    for (const bool has_documents : {false, true}) {
      for (const int64_t window : {1, 2, 5, 16, 299, 300, 1000}) {
        for (const int64_t T : {1, 2, 7, 33, 300, 700}) {
          for (const int ranks : {1, 2, 3, 5}) {
            expect_each_score_once({ranks, 2, T, 1, 1, 1, order, has_documents, 1, true, window});
          }
        }
      }
    }
  }
}

TEST(AttentionMask, AWindowIsMostlyWholeBlocks) {
  const SequenceSplit split(4096, 1);
  int64_t at_edge = 0, all = 0;
  for (const AttentionBlock& block : AttentionMask(split, 1, {.window = 1024}).blocks(0, 0)) {
    all += block.queries.size * block.keys.size;
    if (block.reach.edge) at_edge += block.queries.size * block.keys.size;
  }
  EXPECT_LE(all, 1.3 * 4096 * 1024);
  EXPECT_LE(at_edge, all / 4);
}

TEST(AttentionMask, AWindowAsLongAsTheSequenceIsNone) {
  const SequenceSplit split(300, 2);
  for (int q = 0; q < 2; ++q) {
    for (int k = 0; k < 2; ++k) {
      EXPECT_EQ(AttentionMask(split, 1, {.window = 300}).blocks(q, k),
                AttentionMask(split, 1).blocks(q, k));
    }
  }
}

TEST(AttentionMask, RefusesAWindowWithoutCausality) {
  EXPECT_THROW(AttentionMask(SequenceSplit(8, 1), 1, {.causal = false, .window = 4}), ConfigError);
}

TEST(AttentionMask, ZigZagIsTheSameWorkOnEveryRank) {
  for (const int ranks : {2, 4, 8}) {
    const int64_t T = 64L * ranks;
    const SequenceSplit zig_zag(T, ranks);
    const SequenceSplit contiguous(T, ranks, SequenceOrder::kContiguous);
    const int64_t even = work_of(zig_zag, 0);
    EXPECT_EQ(even * ranks, T * (T + 1) / 2);
    for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(work_of(zig_zag, rank), even);
    // The last of p contiguous ranks has almost twice its share: (2p - 1) / p.
    const auto worst = static_cast<double>(work_of(contiguous, ranks - 1));
    EXPECT_NEAR(worst / static_cast<double>(even), 2.0 - 1.0 / ranks, 0.01);
  }
}

TEST(AttentionMask, RefusesDocumentsOfAnotherShapeOrDtype) {
  const SequenceSplit split(8, 2);
  EXPECT_THROW(AttentionMask(split, 1, {true, at::zeros({1, 7}, at::kLong)}), ConfigError);
  EXPECT_THROW(AttentionMask(split, 2, {true, at::zeros({1, 8}, at::kLong)}), ConfigError);
  EXPECT_THROW(AttentionMask(split, 1, {true, at::zeros({1, 8})}), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
