#include "trireme/parallel/context/attention_sums.h"

#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

using harness::assert_close;

struct SummedOperands {
  at::Tensor q, k, v;
};

SummedOperands summed_operands(int64_t t, int64_t s, at::ScalarType dtype) {
  at::manual_seed(static_cast<uint64_t>(t * 100 + s));
  const auto heads = [&](int64_t num, int64_t tokens) {
    return at::randn({2, tokens, num, 8}, at::kDouble).to(dtype).transpose(1, 2);
  };
  return {heads(6, t), heads(2, s), heads(2, s)};
}

TEST(OnlineSoftmax, PartsMergeToTheWholeInAnyPartition) {
  const auto [q, k, v] = summed_operands(10, 30, at::kDouble);
  const PartialAttention whole = attention(q, k, v, {});
  OnlineSoftmax softmax(q);
  for (const mesh::Range keys : {mesh::Range{0, 1}, {1, 17}, {18, 12}}) {
    for (const mesh::Range queries : {mesh::Range{0, 4}, {4, 6}}) {
      for (const mesh::Range sequences : {mesh::Range{0, 1}, {1, 1}}) {
        const auto of = [&](const at::Tensor& x, const mesh::Range& tokens) {
          return x.narrow(0, sequences.offset, 1).narrow(2, tokens.offset, tokens.size);
        };
        softmax.add({sequences, queries, keys},
                    attention(of(q, queries), of(k, keys), of(v, keys), {}));
      }
    }
  }
  assert_close(softmax.out_BNtH(), whole.out_BNtH, 1e-14, 0, "out");
  assert_close(softmax.lse_BNt(), whole.lse_BNt, 1e-14, 0, "lse");
}

// exp() of neither part may overflow: only differences of logarithms are taken to it.
TEST(OnlineSoftmax, HugeScoresMerge) {
  const auto [q, k, v] = summed_operands(3, 6, at::kDouble);
  const at::Tensor huge = k * 1e4;
  OnlineSoftmax softmax(q);
  for (const mesh::Range keys : {mesh::Range{0, 3}, {3, 3}}) {
    softmax.add({{0, 2}, {0, 3}, keys},
                attention(q, huge.narrow(2, keys.offset, 3), v.narrow(2, keys.offset, 3), {}));
  }
  assert_close(softmax.out_BNtH(), attention(q, huge, v, {}).out_BNtH, 1e-11, 0, "out");
}

TEST(OnlineSoftmax, AQueryThatReadNothingIsZero) {
  const auto [q, k, v] = summed_operands(4, 2, at::kBFloat16);
  OnlineSoftmax softmax(q);
  softmax.add({{0, 2}, {2, 2}, {0, 2}}, attention(q.narrow(2, 2, 2), k, v, {}));
  EXPECT_EQ(softmax.out_BNtH().scalar_type(), at::kBFloat16);
  EXPECT_EQ(softmax.out_BNtH().narrow(2, 0, 2).abs().max().item<double>(), 0);
  EXPECT_EQ(softmax.lse_BNt().narrow(2, 0, 2).max().item<double>(),
            -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(softmax.lse_BNt().narrow(2, 2, 2).isfinite().all().item<bool>());
}

// What a part writes is not filled before; what it leaves out, before, between and behind, is.
TEST(OnlineSoftmax, QueriesBetweenThoseThatReadAreZeroUntilTheyRead) {
  const auto [q, k, v] = summed_operands(8, 4, at::kDouble);
  const auto part = [&](const mesh::Range& sequences, const mesh::Range& queries) {
    return attention(block_of(q, sequences, queries), k.narrow(0, sequences.offset, sequences.size),
                     v.narrow(0, sequences.offset, sequences.size), {});
  };
  const PartialAttention whole = part({0, 2}, {0, 8});
  OnlineSoftmax softmax(q);
  softmax.add({{0, 1}, {3, 2}, {0, 4}}, part({0, 1}, {3, 2}));
  softmax.add({{0, 2}, {6, 1}, {0, 4}}, part({0, 2}, {6, 1}));
  softmax.add({{0, 2}, {1, 1}, {0, 4}}, part({0, 2}, {1, 1}));
  softmax.add({{1, 1}, {5, 3}, {0, 4}}, part({1, 1}, {5, 3}));  // 6 a second time: the same mean
  at::Tensor expected = at::zeros_like(whole.out_BNtH);
  const mesh::Range read[][2] = {
      {{0, 1}, {3, 2}}, {{0, 2}, {6, 1}}, {{0, 2}, {1, 1}}, {{1, 1}, {5, 3}}};
  for (const auto& [sequences, queries] : read) {
    block_of(expected, sequences, queries).copy_(block_of(whole.out_BNtH, sequences, queries));
  }
  assert_close(softmax.out_BNtH(), expected, 1e-14, 0, "out");
  EXPECT_EQ(softmax.lse_BNt().isfinite().sum().item<int64_t>(),
            expected.abs().sum(-1).gt(0).sum().item<int64_t>());
}

// However many parts there are, their mean is off by its own rounding, and by little else: the sums
// are of fp32.
TEST(OnlineSoftmax, PartsOfLowPrecisionAreRoundedOnce) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (int64_t num_parts = 1; num_parts <= 16; ++num_parts) {
      at::manual_seed(static_cast<uint64_t>(num_parts));
      const at::Tensor like = at::empty({2, 3, 5, 8}, dtype);
      OnlineSoftmax softmax(like);
      at::Tensor sum = at::zeros({2, 3, 5, 8}, at::kDouble);
      for (int64_t i = 0; i < num_parts; ++i) {
        const at::Tensor part = at::rand({2, 3, 5, 8}).add(0.5).to(dtype);
        softmax.add({{0, 2}, {0, 5}, {i, 1}}, {part, at::zeros({2, 3, 5})});
        sum += part.to(at::kDouble);
      }
      const at::Tensor mean = (sum / static_cast<double>(num_parts)).to(at::kFloat);
      const double rounding = (dtype == at::kHalf ? 0x1p-11 : 0x1p-8) + 0x1p-18;
      EXPECT_EQ(softmax.out_BNtH().scalar_type(), dtype);
      assert_close(softmax.out_BNtH().to(at::kFloat), mean, rounding, 0, "mean");
    }
  }
}

TEST(OnlineSoftmax, SinksTakeTheirShareOfOneAndOfSeveralParts) {
  for (const int64_t num_parts : {1, 2, 3}) {
    const auto [q, k, v] = summed_operands(6, 6, at::kDouble);
    const at::Tensor sinks = at::randn({6}, at::kDouble);
    OnlineSoftmax softmax(q);
    for (int64_t i = 0; i < num_parts; ++i) {
      const mesh::Range keys =
          mesh::split_range(6, static_cast<int>(num_parts), static_cast<int>(i));
      softmax.add({{0, 2}, {0, 6}, keys}, attention(q, k.narrow(2, keys.offset, keys.size),
                                                    v.narrow(2, keys.offset, keys.size), {}));
    }
    softmax.add_sinks(sinks);
    const PartialAttention whole = attention(q, k, v, {});
    const at::Tensor lse = at::logaddexp(whole.lse_BNt, sinks.unsqueeze(-1));
    assert_close(softmax.lse_BNt(), lse, 1e-13, 0, "lse");
    assert_close(softmax.out_BNtH(), whole.out_BNtH * (whole.lse_BNt - lse).exp().unsqueeze(-1),
                 1e-13, 0, "out");
  }
}

TEST(BlockSum, SumsBlocksAndIsZeroElsewhere) {
  const at::Tensor like = at::zeros({2, 3, 4, 5}, at::kBFloat16);
  BlockSum sum(like);
  sum.add({0, 1}, {1, 2}, at::ones({1, 3, 2, 5}, at::kBFloat16));
  sum.add({0, 2}, {2, 2}, at::ones({2, 3, 2, 5}, at::kBFloat16));
  at::Tensor expected = at::zeros({2, 3, 4, 5});
  expected.narrow(0, 0, 1).narrow(2, 1, 2).add_(1);
  expected.narrow(2, 2, 2).add_(1);
  harness::assert_same_bits(sum.sum_BNtH(at::kFloat), expected, "sum");
  EXPECT_TRUE(sum.sum_BNtH(at::kFloat).transpose(1, 2).is_contiguous());
  sum.add({1, 1}, {0, 4}, at::ones({1, 3, 4, 5}));  // after a look at it
  expected.narrow(0, 1, 1).add_(1);
  harness::assert_same_bits(sum.sum_BNtH(at::kFloat), expected, "more");
  BlockSum one(like);
  one.add({0, 2}, {0, 4}, at::ones({2, 3, 4, 5}));
  harness::assert_same_bits(one.sum_BNtH(at::kFloat), at::ones({2, 3, 4, 5}), "one block");
  EXPECT_TRUE(one.sum_BNtH(at::kFloat).transpose(1, 2).is_contiguous());
  harness::assert_same_bits(BlockSum(like).sum_BNtH(at::kFloat), at::zeros({2, 3, 4, 5}), "none");
}

// 1, then halves of its unit in bf16, which each alone would be lost.
TEST(BlockSum, SumsOfLowPrecisionAreRoundedOnce) {
  const at::Tensor like = at::empty({1, 1, 3, 2}, at::kBFloat16);
  const auto filled = [](double value) { return at::full({1, 1, 3, 2}, value, at::kBFloat16); };
  BlockSum sum(like);
  sum.add({0, 1}, {0, 3}, filled(1));
  EXPECT_EQ(sum.exact_sum_BNtH().scalar_type(), at::kBFloat16);
  for (int i = 0; i < 4; ++i) sum.add({0, 1}, {0, 3}, filled(0x1p-9));
  harness::assert_same_bits(sum.sum_BNtH(at::kBFloat16), filled(1 + 0x1p-7), "sum");
  // Rows that one block, two, and none have written, the last in fp32.
  BlockSum mixed(like);
  mixed.add({0, 1}, {0, 2}, filled(1).narrow(2, 0, 2));
  mixed.add({0, 1}, {1, 1}, at::full({1, 1, 1, 2}, 0x1p-12));
  const at::Tensor expected =
      at::tensor({1.0, 1.0, 1 + 0x1p-12, 1 + 0x1p-12, 0.0, 0.0}, at::kFloat);
  harness::assert_same_bits(mixed.exact_sum_BNtH().contiguous().flatten(), expected, "mixed");
}

}  // namespace
}  // namespace trireme::parallel
