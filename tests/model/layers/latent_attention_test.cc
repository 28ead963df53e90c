#include "trireme/model/layers/latent_attention.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/parallel/tensor/whole_and_part.h"
#include "trireme/model/layers/rotary.h"

namespace trireme::model {
namespace {

using namespace harness;
using parallel::TensorAxis;

constexpr int64_t kLatentHeads = 3, kLatentTokens = 7, kLatentWidth = 12;
using Weights = std::map<std::string, at::Tensor>;

ModelConfig latent_config(int64_t q_rank, int64_t v_width) {
  return {.width = kLatentWidth,
          .heads = kLatentHeads,
          .kv_heads = kLatentHeads,
          .attention = {.kv_lora_rank = 5,
                        .q_lora_rank = q_rank,
                        .qk_nope_width = 3,
                        .qk_rope_width = 4,
                        .v_head_width = v_width}};
}

// Whole values of every parameter.
Weights latent_weights(const AttentionConfig& config) {
  const int64_t N = kLatentHeads, D = kLatentWidth, Q = config.qk_width();
  Weights weights = {{"kv_a_proj_with_mqa.weight", values({5 + 4, D}, 0.41)},
                     {"kv_a_layernorm.weight", values({5}, 0.9)},
                     {"kv_b_proj.weight", values({N * (3 + config.v_head_width), 5}, 0.53)},
                     {"o_proj.weight", values({D, N * config.v_head_width}, 0.61)}};
  if (config.q_lora_rank == 0) {
    weights["q_proj.weight"] = values({N * Q, D}, 0.31);
  } else {
    weights["q_a_proj.weight"] = values({config.q_lora_rank, D}, 0.33);
    weights["q_a_layernorm.weight"] = values({config.q_lora_rank}, 0.8);
    weights["q_b_proj.weight"] = values({N * Q, config.q_lora_rank}, 0.37);
  }
  return weights;
}

at::Tensor latent_part(const TensorAxis& axis, const std::string& name, const at::Tensor& whole) {
  if (name.find("_a_") != name.npos) return whole.clone();
  const int64_t dim = name == "o_proj.weight" ? 1 : 0;
  const mesh::Range own = mesh::split_range(kLatentHeads, axis.size(), axis.rank());
  const int64_t width = whole.size(dim) / kLatentHeads;
  return whole.narrow(dim, own.offset * width, own.size * width).contiguous();
}

at::Tensor turned(const at::Tensor& x_BTnR, const RotaryTable& table) {
  const at::Tensor cos = table.cos_TH.narrow(0, 0, kLatentTokens).unsqueeze(1).repeat({1, 1, 2}),
                   sin = table.sin_TH.narrow(0, 0, kLatentTokens).unsqueeze(1).repeat({1, 1, 2});
  const std::vector<at::Tensor> halves = x_BTnR.chunk(2, -1);
  return x_BTnR * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
  return x * at::rsqrt(x.square().mean(-1, true) + 1e-6) * weight;
}

// The paper's formulas, head by head.
at::Tensor latent_oracle(const AttentionConfig& config, const at::Tensor& x, const Weights& w,
                         const RotaryTable& table) {
  const at::Tensor q =
      config.q_lora_rank == 0
          ? at::linear(x, w.at("q_proj.weight"))
          : at::linear(normed(at::linear(x, w.at("q_a_proj.weight")), w.at("q_a_layernorm.weight")),
                       w.at("q_b_proj.weight"));
  const at::Tensor compressed = at::linear(x, w.at("kv_a_proj_with_mqa.weight"));
  const at::Tensor kv = at::linear(
      normed(compressed.narrow(-1, 0, 5), w.at("kv_a_layernorm.weight")), w.at("kv_b_proj.weight"));
  const at::Tensor k_rope = turned(compressed.narrow(-1, 5, 4).unsqueeze(2), table).squeeze(2);
  const at::Tensor mask = at::full({kLatentTokens, kLatentTokens},
                                   -std::numeric_limits<double>::infinity(), at::kDouble)
                              .triu(1);
  std::vector<at::Tensor> outputs;
  for (int64_t n = 0; n < kLatentHeads; ++n) {
    const at::Tensor q_n = q.narrow(-1, n * 7, 7);
    const at::Tensor kv_n = kv.narrow(-1, n * (3 + config.v_head_width), 3 + config.v_head_width);
    const at::Tensor turned_q = at::cat(
        {q_n.narrow(-1, 0, 3), turned(q_n.narrow(-1, 3, 4).unsqueeze(2), table).squeeze(2)}, -1);
    const at::Tensor k_n = at::cat({kv_n.narrow(-1, 0, 3), k_rope}, -1);
    const at::Tensor p =
        at::softmax(at::matmul(turned_q, k_n.transpose(1, 2)) / std::sqrt(7.0) + mask, -1);
    outputs.push_back(at::matmul(p, kv_n.narrow(-1, 3, config.v_head_width)));
  }
  return at::linear(at::cat(outputs, -1), w.at("o_proj.weight"));
}

// Values narrower and wider than queries, and queries with and without a latent.
TEST(LatentAttention, EqualsItsFormulasOnAnyTensorAxis) {
  constexpr double kFp64 = 1e-12;  // sums of at most a hundred products in another order
  for (const auto& [q_rank, v_width] : {std::pair(0, 4), {6, 7}, {6, 9}}) {
    SCOPED_TRACE(concat("q_lora_rank ", q_rank, ", v_head_width ", v_width));
    const ModelConfig config = latent_config(q_rank, v_width);
    const RotaryTable table(kLatentTokens, 4, 10000, at::kDouble);
    parallel::for_each_axis({1, 2, 3}, [&](const TensorAxis& axis) {
      for (const bool again : {false, true}) {
        Weights weights = latent_weights(config.attention);
        LatentAttention module(config, {.tensor = axis}, at::kDouble);
        module.recompute_core = again;
        ASSERT_EQ(module.named_parameters().size(), weights.size());
        for (auto& item : module.named_parameters()) {
          const at::NoGradGuard no_grad;
          item.value().copy_(latent_part(axis, item.key(), weights.at(item.key())));
        }
        const at::Tensor x = values({2, kLatentTokens, kLatentWidth}, 0.37);
        const at::Tensor factor = values(x.sizes(), 0.7);
        const at::Tensor own = parallel::held_rows(x, axis).requires_grad_();
        const TokenBatch batch{
            .B = 2, .T = kLatentTokens, .cos_TH = table.cos_TH, .sin_TH = table.sin_TH};
        const at::Tensor y = module.forward(own, at::zeros_like(own), batch);
        (y * parallel::held_rows(factor, axis)).sum().backward();

        const at::Tensor leaf = x.clone().requires_grad_();
        for (auto& [name, weight] : weights) weight.requires_grad_();
        const at::Tensor expected = latent_oracle(config.attention, leaf, weights, table);
        (expected * factor).sum().backward();
        assert_close(y.detach(), parallel::held_rows(expected.detach(), axis), kFp64, kFp64, "y");
        assert_close(own.grad(), parallel::held_rows(leaf.grad(), axis), kFp64, kFp64,
                     "gradient of x");
        for (const auto& item : module.named_parameters()) {
          assert_close(item.value().grad(),
                       latent_part(axis, item.key(), weights.at(item.key()).grad()), kFp64, kFp64,
                       "gradient of " + item.key());
        }
      }
    });
  }
}

}  // namespace
}  // namespace trireme::model
