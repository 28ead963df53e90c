#include "trireme/model/attention.h"

#include <ATen/ATen.h>

#include "trireme/model/recompute.h"

namespace trireme::model {
namespace {

// [B, T, K * H] -> [B, N, T, H]; each kv head is copied for its N/K query heads.
at::Tensor split_heads(const at::Tensor& x_BTG, int64_t kv_heads, int64_t copies) {
  const int64_t B = x_BTG.size(0);
  const int64_t T = x_BTG.size(1);
  const int64_t H = x_BTG.size(2) / kv_heads;
  const at::Tensor x_BTKH = x_BTG.view({B, T, kv_heads, H});
  if (copies == 1) return x_BTKH.transpose(1, 2);
  const at::Tensor x_BTNH =
      x_BTKH.unsqueeze(3).expand({B, T, kv_heads, copies, H}).reshape({B, T, kv_heads * copies, H});
  return x_BTNH.transpose(1, 2);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q_BTD, const at::Tensor& k_BTG,
                            const at::Tensor& v_BTG, int64_t heads, int64_t kv_heads) {
  const int64_t copies = heads / kv_heads;
  const at::Tensor q_BNTH = split_heads(q_BTD, heads, 1);
  const at::Tensor k_BNTH = split_heads(k_BTG, kv_heads, copies);
  const at::Tensor v_BNTH = split_heads(v_BTG, kv_heads, copies);
  const at::Tensor out_BNTH = at::scaled_dot_product_attention(
      q_BNTH, k_BNTH, v_BNTH, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
  return out_BNTH.transpose(1, 2).reshape(q_BTD.sizes());
}

Attention::Attention(const ModelConfig& config, at::ScalarType dtype)
    : heads_(config.heads), kv_heads_(config.kv_heads) {
  const int64_t D = config.width;
  const int64_t kv_width = config.kv_heads * config.head_width();
  q_proj = register_module("q_proj", std::make_shared<Linear>(D, D, false, dtype));
  k_proj = register_module("k_proj", std::make_shared<Linear>(D, kv_width, false, dtype));
  v_proj = register_module("v_proj", std::make_shared<Linear>(D, kv_width, false, dtype));
  o_proj = register_module("o_proj", std::make_shared<Linear>(D, D, false, dtype));
}

at::Tensor Attention::forward(const at::Tensor& x_BTD, const at::Tensor& residual_BTD,
                              const RotaryTable& rotary) {
  auto [q_BTD, k_BTG, v_BTG] = project(x_BTD, q_proj->weight, k_proj->weight, v_proj->weight);
  q_BTD = apply_rotary(q_BTD, rotary.cos_TH, rotary.sin_TH);
  k_BTG = apply_rotary(k_BTG, rotary.cos_TH, rotary.sin_TH);
  const auto core = [heads = heads_, kv_heads = kv_heads_](const std::vector<at::Tensor>& x) {
    return causal_attention(x[0], x[1], x[2], heads, kv_heads);
  };
  const at::Tensor out_BTD = recompute_if(recompute_core, core, {q_BTD, k_BTG, v_BTG});
  return o_proj->forward_add(out_BTD, residual_BTD);
}

}  // namespace trireme::model
