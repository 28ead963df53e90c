#include "trireme/parallel/data/tree_sum.h"

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

// A number that remembers how it was added up.
struct Traced {
  std::string text;
  Traced& operator+=(const Traced& other) {
    text = "(" + text + other.text + ")";
    return *this;
  }
};

std::string trace(int count) {
  TreeSum<Traced> sum;
  for (int i = 0; i < count; ++i) sum.push({std::string(1, static_cast<char>('a' + i))});
  return sum.take().text;
}

TEST(TreeSum, AddsNeighboursFirst) {
  EXPECT_EQ(trace(1), "a");
  EXPECT_EQ(trace(2), "(ab)");
  EXPECT_EQ(trace(3), "((ab)c)");
  EXPECT_EQ(trace(4), "((ab)(cd))");
  EXPECT_EQ(trace(7), "(((ab)(cd))((ef)g))");
  EXPECT_EQ(trace(8), "(((ab)(cd))((ef)(gh)))");
}

TEST(TreeSum, IsEmptyAfterwards) {
  TreeSum<double> sum;
  EXPECT_TRUE(sum.empty());
  sum.push(1);
  sum.push(2);
  sum.push(4);
  EXPECT_EQ(sum.take(), 7);
  EXPECT_TRUE(sum.empty());
}

// Values whose fp32 sum depends on the order.
at::Tensor term(int64_t leaf, int64_t elements) {
  return ((at::arange(elements, at::kFloat) + 1) * (leaf + 1) * 0.7312).sin() *
         std::pow(10.0, static_cast<double>(leaf % 5));
}

TEST(TreeSum, BitsAreTheSameForEveryNumberOfRanksThatShareTheLeaves) {
  constexpr int64_t kElements = 1000;
  constexpr int kLeaves = 8;
  TreeSum<at::Tensor> alone;
  at::Tensor in_order = at::zeros({kElements});
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    alone.push(term(leaf, kElements));
    in_order += term(leaf, kElements);
  }
  const at::Tensor expected = alone.take();
  EXPECT_FALSE(expected.equal(in_order)) << "the values do not tell orders apart";
  for (const int ranks : {1, 2, 4, 8}) {
    harness::run_ranks(ranks, [&](comm::Communicator& group) {
      TreeSum<at::Tensor> mine;
      const int share = kLeaves / ranks;
      for (int i = 0; i < share; ++i) mine.push(term(group.rank() * share + i, kElements));
      const at::Tensor sum = mine.take();
      std::vector<int64_t> cuts{0};
      for (int r = 1; r < ranks; ++r) cuts.push_back(r == 1 ? 3 : kElements / 2 + r);
      cuts.push_back(kElements);
      const auto rank = static_cast<size_t>(group.rank());
      const int64_t size = cuts[rank + 1] - cuts[rank];
      harness::assert_same_bits(tree_reduce_scatter(group, sum, cuts),
                                expected.narrow(0, cuts[rank], size), "part");
      tree_all_reduce(group, sum);
      harness::assert_same_bits(sum, expected, "all");
    });
  }
}

TEST(TreeSum, MovesTheBytesOfItsContract) {
  harness::run_ranks(4, [](comm::Communicator& inner) {
    harness::CountingCommunicator group(inner);
    tree_all_reduce(group, at::ones({400}));
    EXPECT_EQ(group.ledger().of(group.name()).bytes, 2 * 3 * 400 * 4 / 4);
  });
}

}  // namespace
}  // namespace trireme::parallel
