#include "trireme/parallel/context/local_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

using harness::assert_close;

struct Operands {
  at::Tensor q, k, v, grad_out;
};

Operands operands(int64_t t, int64_t s, at::ScalarType dtype) {
  at::manual_seed(static_cast<uint64_t>(t * 100 + s));
  const auto heads = [&](int64_t num, int64_t tokens) {
    return at::randn({2, tokens, num, 8}, at::kDouble).to(dtype).transpose(1, 2);
  };
  return {heads(6, t), heads(2, s), heads(2, s), heads(6, t)};
}

// libtorch's kernel and ATen's operators compute the same from two sides. fp32: sums of s and of H
// terms on both; bf16 and fp16: the kernel rounds probabilities and results, 2^-9 and 2^-12 each.
TEST(LocalAttention, KernelAndComposedAgree) {
  struct Precision {
    at::ScalarType dtype;
    double relative;
  };
  const double fp32 = std::ldexp(4.0 * 130, -24);
  for (const auto& [dtype, relative] : {Precision{at::kDouble, 1e-12},
                                        {at::kFloat, fp32},
                                        {at::kBFloat16, 16 * std::ldexp(1, -9)},
                                        {at::kHalf, 16 * std::ldexp(1, -12)}}) {
    for (const auto& [t, s, is_causal] : std::vector<std::tuple<int64_t, int64_t, bool>>{
             {1, 1, true}, {9, 9, true}, {130, 130, true}, {1, 5, false}, {33, 70, false}}) {
      const auto [q, k, v, grad_out] = operands(t, s, dtype);
      const PartialAttention kernel = attention(q, k, v, {is_causal});
      const PartialAttention composed = composed_attention(q, k, v, {is_causal});
      EXPECT_EQ(composed.out_BNtH.scalar_type(), dtype);
      EXPECT_EQ(kernel.lse_BNt.scalar_type(), accumulation_dtype(dtype));
      assert_close(kernel.out_BNtH, composed.out_BNtH, relative, 0, "out");
      assert_close(kernel.lse_BNt, composed.lse_BNt, relative, 0, "lse");
      const AttentionGradients a = attention_backward(grad_out, q, k, v, kernel, {is_causal});
      const AttentionGradients b =
          composed_attention_backward(grad_out, q, k, v, kernel, {is_causal});
      EXPECT_EQ(b.q_BNtH.scalar_type(), accumulation_dtype(dtype));
      // One token's gradient of q is zero but for rounding.
      assert_close(a.q_BNtH, b.q_BNtH, relative, relative, "gradient of q");
      assert_close(a.k_BKsH, b.k_BKsH, relative, relative, "gradient of k");
      assert_close(a.v_BKsH, b.v_BKsH, relative, 0, "gradient of v");
    }
  }
}

TEST(LocalAttention, ComposedBackwardIsAutogradsOfComposedForward) {
  auto [q, k, v, grad_out] = operands(7, 7, at::kDouble);
  for (at::Tensor* x : {&q, &k, &v}) x->requires_grad_();
  const PartialAttention whole = composed_attention(q, k, v, {true});
  (whole.out_BNtH * grad_out).sum().backward();
  const PartialAttention values{whole.out_BNtH.detach(), whole.lse_BNt.detach()};
  const AttentionGradients mine =
      composed_attention_backward(grad_out, q.detach(), k.detach(), v.detach(), values, {true});
  assert_close(mine.q_BNtH, q.grad(), 1e-13, 0, "q");
  assert_close(mine.k_BKsH, k.grad(), 1e-13, 0, "k");
  assert_close(mine.v_BKsH, v.grad(), 1e-13, 0, "v");
}

TEST(OnlineSoftmax, PartsMergeToTheWholeInAnyPartition) {
  const auto [q, k, v, unused] = operands(10, 30, at::kDouble);
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
  const auto [q, k, v, unused] = operands(3, 6, at::kDouble);
  const at::Tensor huge = k * 1e4;
  OnlineSoftmax softmax(q);
  for (const mesh::Range keys : {mesh::Range{0, 3}, {3, 3}}) {
    softmax.add({{0, 2}, {0, 3}, keys},
                attention(q, huge.narrow(2, keys.offset, 3), v.narrow(2, keys.offset, 3), {}));
  }
  assert_close(softmax.out_BNtH(), attention(q, huge, v, {}).out_BNtH, 1e-11, 0, "out");
}

TEST(OnlineSoftmax, AQueryThatReadNothingIsZero) {
  const auto [q, k, v, unused] = operands(4, 2, at::kBFloat16);
  OnlineSoftmax softmax(q);
  softmax.add({{0, 2}, {2, 2}, {0, 2}}, attention(q.narrow(2, 2, 2), k, v, {}));
  EXPECT_EQ(softmax.out_BNtH().scalar_type(), at::kFloat);
  EXPECT_EQ(softmax.out_BNtH().narrow(2, 0, 2).abs().max().item<double>(), 0);
  EXPECT_EQ(softmax.lse_BNt().narrow(2, 0, 2).max().item<double>(),
            -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(softmax.lse_BNt().narrow(2, 2, 2).isfinite().all().item<bool>());
}

// What a part writes is not filled before; what it leaves out, before, between and behind, is.
TEST(OnlineSoftmax, QueriesBetweenThoseThatReadAreZeroUntilTheyRead) {
  const auto [q, k, v, unused] = operands(8, 4, at::kDouble);
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

TEST(BlockSum, SumsBlocksAndIsZeroElsewhere) {
  const at::Tensor like = at::zeros({2, 3, 4, 5}, at::kBFloat16);
  BlockSum sum(like);
  sum.add({0, 1}, {1, 2}, at::ones({1, 3, 2, 5}, at::kBFloat16));
  sum.add({0, 2}, {2, 2}, at::ones({2, 3, 2, 5}, at::kBFloat16));
  at::Tensor expected = at::zeros({2, 3, 4, 5});
  expected.narrow(0, 0, 1).narrow(2, 1, 2).add_(1);
  expected.narrow(2, 2, 2).add_(1);
  harness::assert_same_bits(sum.sum_BNtH(), expected, "sum");
  EXPECT_TRUE(sum.sum_BNtH().transpose(1, 2).is_contiguous());
  sum.add({1, 1}, {0, 4}, at::ones({1, 3, 4, 5}));  // after a look at it
  expected.narrow(0, 1, 1).add_(1);
  harness::assert_same_bits(sum.sum_BNtH(), expected, "more");
  BlockSum one(like);
  one.add({0, 2}, {0, 4}, at::ones({2, 3, 4, 5}));
  harness::assert_same_bits(one.sum_BNtH(), at::ones({2, 3, 4, 5}), "one block");
  EXPECT_TRUE(one.sum_BNtH().transpose(1, 2).is_contiguous());
  harness::assert_same_bits(BlockSum(like).sum_BNtH(), at::zeros({2, 3, 4, 5}), "none");
}

}  // namespace
}  // namespace trireme::parallel
