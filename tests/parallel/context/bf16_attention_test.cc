#include "trireme/parallel/context/bf16_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

using harness::assert_close;
using harness::assert_same_bits;

struct Bf16Operands {
  at::Tensor q, k, v, grad_out;
};

Bf16Operands operands(int64_t t, int64_t s, int64_t heads, int64_t kv_heads, int64_t H) {
  at::manual_seed(static_cast<uint64_t>(t * 1000 + s));
  const auto of = [&](int64_t num, int64_t tokens) {
    return at::randn({2, tokens, num, H}).to(at::kBFloat16).transpose(1, 2);
  };
  return {of(heads, t), of(kv_heads, s), of(kv_heads, s), of(heads, t)};
}

// The usual scale, and another one for heads of an unusual width.
double scale_of(const Bf16Operands& in) {
  const int64_t H = in.q.size(3);
  return H == 34 ? 0.1 : 1 / std::sqrt(static_cast<double>(H));
}

std::vector<at::Tensor> all_of(const Bf16Operands& in, bool is_causal) {
  const double scale = scale_of(in);
  const PartialAttention out = bf16_attention(in.q, in.k, in.v, is_causal, scale);
  const AttentionGradients grads =
      bf16_attention_backward(in.grad_out, in.q, in.k, in.v, out, is_causal, scale);
  return {out.out_BNtH, out.lse_BNt, grads.q_BNtH, grads.k_BKsH, grads.v_BKsH};
}

class Bf16Attention : public testing::Test {
  void SetUp() override {
    if (!has_bf16_attention(at::zeros({1, 1, 1, 2}, at::kBFloat16)))
      GTEST_SKIP() << "this processor has no matrix unit for bf16";
  }
};

// Scores of blocks that are whole, cut, and in several rows and columns. Inputs are the same
// numbers in both. The output and the gradient of v are rounded by up to 2^-8 twice: the
// probabilities that are summed, and the result. The others also read an output that was rounded,
// and sum rounded gradients of scores: four times.
TEST_F(Bf16Attention, EqualsTheComposedFormOnTheSameNumbers) {
  for (const auto& [t, s, is_causal] :
       std::vector<std::tuple<int64_t, int64_t, bool>>{{1, 1, true},
                                                       {2, 2, true},
                                                       {15, 15, true},
                                                       {16, 16, true},
                                                       {63, 63, true},
                                                       {64, 64, true},
                                                       {65, 65, true},
                                                       {256, 256, true},
                                                       {257, 257, true},
                                                       {600, 600, true},
                                                       {1, 300, false},
                                                       {300, 1, false},
                                                       {70, 513, false},
                                                       {513, 70, false}}) {
    for (const auto& [heads, kv_heads, H] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{2, 2, 64}, {6, 2, 8}, {3, 1, 34}}) {
      const Bf16Operands in = operands(t, s, heads, kv_heads, H);
      const std::vector<at::Tensor> kernel = all_of(in, is_causal);
      const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
      const ScoreForm scores{.scale = scale_of(in)};
      const PartialAttention composed =
          composed_attention(wide(in.q), wide(in.k), wide(in.v), {is_causal}, scores);
      const AttentionGradients grads = composed_attention_backward(
          wide(in.grad_out), wide(in.q), wide(in.k), wide(in.v), composed, {is_causal}, scores);
      const std::string what = std::to_string(t) + " x " + std::to_string(s) + ", " +
                               std::to_string(heads) + " heads of " + std::to_string(H);
      constexpr double kTwice = 2 * 0x1p-8, kFourTimes = 4 * 0x1p-8;
      assert_close(wide(kernel[0]), composed.out_BNtH, kTwice, 0, "out of " + what);
      assert_close(wide(kernel[1]), composed.lse_BNt, 1e-5, 1e-5, "lse of " + what);
      // A gradient of a score is a difference. Where a query reads one or two keys, little but
      // rounding is left of it, of gradients of the size of H^(1/2).
      const double absolute = std::min(t, s) > 2 ? 0 : std::sqrt(static_cast<double>(H)) * 0x1p-8;
      assert_close(wide(kernel[2]), grads.q_BNtH, kFourTimes, absolute, "gradient of q of " + what);
      assert_close(wide(kernel[3]), grads.k_BKsH, kFourTimes, absolute, "gradient of k of " + what);
      assert_close(wide(kernel[4]), grads.v_BKsH, kTwice, 0, "gradient of v of " + what);
    }
  }
}

TEST_F(Bf16Attention, LaterTokensChangeNoBitOfEarlierOnes) {
  const Bf16Operands in = operands(300, 300, 2, 2, 64);
  const at::Tensor out = bf16_attention(in.q, in.k, in.v, true, scale_of(in)).out_BNtH;
  for (const int64_t first : {1, 63, 130, 299}) {
    const at::Tensor k = in.k.clone(), v = in.v.clone();
    for (const at::Tensor& x : {k, v}) x.narrow(2, first, 300 - first).fill_(1e30);
    const at::Tensor other = bf16_attention(in.q, k, v, true, scale_of(in)).out_BNtH;
    assert_same_bits(other.narrow(2, 0, first).contiguous(), out.narrow(2, 0, first).contiguous(),
                     std::to_string(first));
  }
}

// A key's gradients come from later queries only.
TEST_F(Bf16Attention, EarlierQueriesChangeNoBitOfTheGradientsOfLaterKeys) {
  const Bf16Operands in = operands(300, 300, 2, 2, 64);
  const std::vector<at::Tensor> plain = all_of(in, true);
  for (const int64_t first : {1, 64, 130, 299}) {
    Bf16Operands other = in;
    other.q = in.q.clone();
    other.grad_out = in.grad_out.clone();
    for (const at::Tensor& x : {other.q, other.grad_out}) x.narrow(2, 0, first).mul_(-3);
    const std::vector<at::Tensor> changed = all_of(other, true);
    for (const size_t i : {3, 4}) {
      const auto later = [&](const at::Tensor& x) {
        return x.narrow(2, first, 300 - first).contiguous();
      };
      assert_same_bits(later(changed[i]), later(plain[i]), std::to_string(first));
    }
  }
}

TEST_F(Bf16Attention, NeitherThreadsNorOtherHeadsChangeBits) {
  // Two query heads each, which share packed keys where there are enough kv heads.
  const Bf16Operands in = operands(130, 130, 4, 2, 32);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> one = all_of(in, true);
  at::set_num_threads(5);
  const std::vector<at::Tensor> many = all_of(in, true);
  at::set_num_threads(before);
  // The second kv head with its queries.
  const auto head = [](const at::Tensor& x) {
    return x.size(1) == 2 ? x.narrow(1, 1, 1) : x.narrow(1, 2, 2);
  };
  const std::vector<at::Tensor> alone =
      all_of({head(in.q), head(in.k), head(in.v), head(in.grad_out)}, true);
  for (size_t i = 0; i < one.size(); ++i) {
    assert_same_bits(many[i].contiguous(), one[i].contiguous(), "threads");
    assert_same_bits(alone[i].contiguous(), head(one[i]).contiguous(), "alone");
  }
}

// There they are not rounded; rounded, they are the bits that come without.
TEST_F(Bf16Attention, GradientsOfKeysGoToRoomThatIsGiven) {
  const Bf16Operands in = operands(130, 130, 4, 2, 32);
  const PartialAttention out = bf16_attention(in.q, in.k, in.v, true, scale_of(in));
  const AttentionGradients plain =
      bf16_attention_backward(in.grad_out, in.q, in.k, in.v, out, true, scale_of(in));
  const auto memory = [] { return at::zeros({2, 140, 2, 32}).narrow(1, 5, 130).transpose(1, 2); };
  const KeyRoom room{memory(), memory()};
  const AttentionGradients grads =
      bf16_attention_backward(in.grad_out, in.q, in.k, in.v, out, true, scale_of(in), room);
  assert_same_bits(grads.q_BNtH, plain.q_BNtH, "q");
  assert_same_bits(room.k_BKsH.to(at::kBFloat16), plain.k_BKsH, "k");
  assert_same_bits(room.v_BKsH.to(at::kBFloat16), plain.v_BKsH, "v");
  EXPECT_TRUE(grads.k_BKsH.is_same(room.k_BKsH) && grads.v_BKsH.is_same(room.v_BKsH));
  EXPECT_GT(room.k_BKsH.sub(plain.k_BKsH).abs().max().item<double>(), 0);
}

TEST_F(Bf16Attention, HugeScoresAndFarFromZeroStayFinite) {
  Bf16Operands in = operands(100, 100, 1, 1, 16);
  in.q = in.q * 100;
  for (const double shift : {-1e3, 1e3}) {
    in.k = at::full_like(in.k, shift) + in.k;
    for (const at::Tensor& x : all_of(in, true)) EXPECT_TRUE(x.isfinite().all().item<bool>());
  }
}

TEST_F(Bf16Attention, AnOddHeadWidthIsForLibtorch) {
  EXPECT_FALSE(has_bf16_attention(at::zeros({1, 1, 1, 3}, at::kBFloat16)));
  EXPECT_FALSE(has_bf16_attention(at::zeros({1, 1, 1, 4}, at::kHalf)));
}

}  // namespace
}  // namespace trireme::parallel
