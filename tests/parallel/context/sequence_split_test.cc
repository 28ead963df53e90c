#include "trireme/parallel/context/sequence_split.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using harness::assert_same_bits;
using Ranges = std::vector<mesh::Range>;

constexpr SequenceOrder kBothOrders[] = {SequenceOrder::kContiguous, SequenceOrder::kZigZag};

TEST(SequenceSplit, ContiguousGivesEachRankOneRun) {
  const SequenceSplit split(10, 3, SequenceOrder::kContiguous);
  EXPECT_EQ(split.ranges(0), (Ranges{{0, 4}}));
  EXPECT_EQ(split.ranges(1), (Ranges{{4, 3}}));
  EXPECT_EQ(split.ranges(2), (Ranges{{7, 3}}));
}

TEST(SequenceSplit, ZigZagGivesEachRankAnEarlyAndALateChunk) {
  const SequenceSplit split(14, 3);
  EXPECT_EQ(split.ranges(0), (Ranges{{0, 3}, {12, 2}}));
  EXPECT_EQ(split.ranges(1), (Ranges{{3, 3}, {10, 2}}));
  EXPECT_EQ(split.ranges(2), (Ranges{{6, 4}}));  // neighbours are one range
  assert_same_bits(split.positions(0), at::tensor(std::vector<int64_t>{0, 1, 2, 12, 13}), "tokens");
}

TEST(SequenceSplit, MoreChunksThanTokensLeavesRanksEmpty) {
  const SequenceSplit split(2, 4);
  EXPECT_EQ(split.ranges(1), (Ranges{{1, 1}}));
  EXPECT_TRUE(split.ranges(3).empty());
  EXPECT_EQ(split.num_tokens(3), 0);
  EXPECT_EQ(split.positions(3).numel(), 0);
  EXPECT_EQ(split.local(at::ones({3, 2, 5}), 1, 3).sizes(), (std::vector<int64_t>{3, 0, 5}));
}

TEST(SequenceSplit, EveryTokenIsOnOneRankAndAssembleIsTheInverseOfLocal) {
  for (const SequenceOrder order : kBothOrders) {
    for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
      for (const int64_t T : {0, 1, 2, 7, 8, 33, 64}) {
        const SequenceSplit split(T, num_ranks, order);
        const at::Tensor whole = at::arange(2 * T * 3, at::kDouble).view({2, T, 3});
        std::vector<at::Tensor> parts;
        int64_t least = T;
        int64_t most = 0;
        for (int rank = 0; rank < num_ranks; ++rank) {
          parts.push_back(split.local(whole, 1, rank));
          ASSERT_EQ(parts.back().size(1), split.num_tokens(rank));
          assert_same_bits(parts.back(), whole.index_select(1, split.positions(rank)), "local");
          least = std::min(least, split.num_tokens(rank));
          most = std::max(most, split.num_tokens(rank));
        }
        assert_same_bits(split.assemble(parts, 1), whole, "assembled");
        EXPECT_LE(most - least, order == SequenceOrder::kContiguous ? 1 : 2);
      }
    }
  }
}

TEST(SequenceSplit, GradientsGoBackToTheTokensTheyCameFrom) {
  const SequenceSplit split(9, 2);
  const at::Tensor whole = at::arange(9, at::kDouble).requires_grad_();
  const at::Tensor mine = split.local(whole, 0, 1);
  (mine * mine).sum().backward();
  at::Tensor expected = at::zeros(9, at::kDouble);
  expected.index_put_({split.positions(1)}, 2 * split.positions(1).to(at::kDouble));
  assert_same_bits(whole.grad(), expected, "gradient");
}

TEST(SequenceSplit, RefusesWhatDoesNotFit) {
  EXPECT_THROW(SequenceSplit(-1, 2), ConfigError);
  EXPECT_THROW(SequenceSplit(4, 0), ConfigError);
  const SequenceSplit split(4, 2);
  EXPECT_THROW(static_cast<void>(split.local(at::ones({5}), 0, 0)), ConfigError);
  EXPECT_THROW(static_cast<void>(split.assemble({at::ones({4})}, 0)), ConfigError);
  EXPECT_THROW(static_cast<void>(split.assemble({at::ones({3}), at::ones({1})}, 0)), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
