#include "trireme/parallel/context/local_attention.h"

#include <cmath>
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

}  // namespace
}  // namespace trireme::parallel
