#include "trireme/model/layers/attention.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "trireme/model/layers/rotary.h"

namespace trireme::model {
namespace {

using namespace harness;

// softmax(q k^T / sqrt(H) + mask) v, written out.
at::Tensor composed(const Tensors& in, int64_t heads, int64_t kv_heads, bool causal) {
  const int64_t B = in[0].size(0);
  const int64_t T = in[0].size(1);
  const at::Tensor q = in[0].view({B, T, heads, -1}).transpose(1, 2);
  const auto wide = [&](const at::Tensor& x) {
    return x.view({B, T, kv_heads, -1}).transpose(1, 2).repeat_interleave(heads / kv_heads, 1);
  };
  const double masked = causal ? -std::numeric_limits<double>::infinity() : 0;
  const at::Tensor mask = at::full({T, T}, masked, q.options()).triu(1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor p = at::softmax(at::matmul(q, wide(in[1]).transpose(2, 3)) * scale + mask, -1);
  return at::matmul(p, wide(in[2])).transpose(1, 2).reshape({B, T, -1});
}

TEST(AttentionCore, EqualsItsFormulaForGroupedQueries) {
  for (const bool causal : {true, false}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      for (const int64_t length : {1, 5, 70}) {
        assert_same_function(
            [&](const Tensors& in) {
              return attention_core(in[0], in[1], in[2], 4, kv_heads, {.causal = causal});
            },
            [&](const Tensors& in) { return composed(in, 4, kv_heads, causal); },
            {values({2, length, 24}, 0.37), values({2, length, kv_heads * 6}, 0.53),
             values({2, length, kv_heads * 6}, 0.71)},
            1e-12);
      }
    }
  }
}

TEST(AttentionCore, WithinOneDocumentIsThatWithoutDocuments) {
  const Tensors in = {values({2, 9, 24}, 0.37), values({2, 9, 12}, 0.53), values({2, 9, 12}, 0.71)};
  for (const bool causal : {true, false}) {
    const parallel::AttentionReach one{causal, at::full({2, 9}, 3, at::kLong)};
    harness::assert_close(attention_core(in[0], in[1], in[2], 4, 2, one),
                          attention_core(in[0], in[1], in[2], 4, 2, {.causal = causal}), 1e-13, 0,
                          "one document");
  }
}

TEST(Attention, NamesWithDotsAreModulesWithinModules) {
  const ModelConfig config{.layers = 1,
                           .width = 8,
                           .heads = 2,
                           .kv_heads = 2,
                           .ffn_width = 8,
                           .sequence_length = 6,
                           .vocab_size = 5};
  const Attention attention(
      config, {}, at::kFloat,
      {.query = "a.query", .key = "a.key", .value = "a.b.value", .output = "output.dense"});
  std::vector<std::string> names;
  for (const auto& item : attention.named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"a.query.weight", "a.key.weight", "a.b.value.weight",
                                             "output.dense.weight"}));
}

TEST(Attention, AddsItsOutputToTheResidual) {
  const ModelConfig config{.layers = 1,
                           .width = 8,
                           .heads = 2,
                           .kv_heads = 1,
                           .ffn_width = 8,
                           .sequence_length = 6,
                           .vocab_size = 5};
  Attention attention(config, {}, at::kDouble);
  const at::NoGradGuard no_grad;
  double frequency = 0.3;
  for (at::Tensor& p : attention.parameters()) p.copy_(values(p.sizes(), frequency += 0.11));
  const RotaryTable rotary(6, 4, 10000, at::kDouble);
  const at::Tensor x = values({2, 6, 8}, 0.37);
  const at::Tensor residual = values({2, 6, 8}, 0.91);
  const TokenBatch batch{.B = 2, .T = 6, .cos_TH = rotary.cos_TH, .sin_TH = rotary.sin_TH};
  const at::Tensor alone = attention.forward(x, at::zeros_like(x), batch);
  EXPECT_GT(alone.abs().max().item<double>(), 0.1);
  harness::assert_close(attention.forward(x, residual, batch), alone + residual, 1e-14, 0, "sum");
}

}  // namespace
}  // namespace trireme::model
