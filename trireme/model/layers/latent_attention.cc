#include "trireme/model/layers/latent_attention.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/layers/rotary.h"
#include "trireme/parallel/tensor/split_layers.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {
namespace {

// The latents' norms, whatever model.norm_epsilon is, as in DeepSeek's code.
constexpr double kLatentEpsilon = 1e-6;

// The last dimension filled up with zeros.
at::Tensor padded(const at::Tensor& x, int64_t width) {
  return x.size(-1) == width ? x : at::constant_pad_nd(x, {0, width - x.size(-1)});
}

// x is a part of a tensor, so that rotation in place changes nobody else's.
at::Tensor rotated(const at::Tensor& x_BTnR, const TokenBatch& batch) {
  const at::Tensor copy = x_BTnR.clone(at::MemoryFormat::Contiguous);
  return apply_rotary(copy.flatten(2), batch.cos_TH, batch.sin_TH).view(x_BTnR.sizes());
}

}  // namespace

LatentAttention::LatentAttention(const ModelConfig& config, const ModelAxes& axes,
                                 at::ScalarType dtype)
    : config_(config.attention),
      score_factor_(rope_score_factor(config.rope)),
      axis_(axes.tensor),
      heads_(TensorCuts(config, axis_.size()).heads_of(axis_.rank()).size) {
  const int64_t D = config.width, latent = config_.kv_lora_rank;
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, /*bias=*/false, dtype));
  };
  const auto norm = [&](const char* name, int64_t width) {
    return register_module(name, std::make_shared<SharedNorm>(width, kLatentEpsilon, axis_, dtype));
  };
  const int64_t q_width = heads_ * config_.qk_width();
  if (config_.q_lora_rank == 0) {
    q_proj = linear("q_proj", D, q_width);
  } else {
    q_a_proj = linear("q_a_proj", D, config_.q_lora_rank);
    q_a_layernorm = norm("q_a_layernorm", config_.q_lora_rank);
    q_b_proj = linear("q_b_proj", config_.q_lora_rank, q_width);
  }
  kv_a_proj_with_mqa = linear("kv_a_proj_with_mqa", D, latent + config_.qk_rope_width);
  kv_a_layernorm = norm("kv_a_layernorm", latent);
  kv_b_proj = linear("kv_b_proj", latent, heads_ * (config_.qk_nope_width + config_.v_head_width));
  o_proj = linear("o_proj", heads_ * config_.v_head_width, D);
}

LatentAttention::Heads LatentAttention::project(const at::Tensor& x,
                                                const TokenBatch& batch) const {
  const int64_t P = config_.qk_nope_width, R = config_.qk_rope_width, V = config_.v_head_width;
  // On every rank, for the rank's own heads.
  const auto whole = [&](const Linear& projection) {
    parallel::LinearWeight weights = projection.weights(batch);
    for (at::Tensor* const own :
         {&weights.weight, &weights.adapter.b, &weights.adapter.magnitude}) {
      if (own->defined()) *own = parallel::replicated_weight(*own, axis_);
    }
    return weights;
  };
  const std::vector<at::Tensor> projected = parallel::column_linear(
      x, {q_proj ? q_proj->weights(batch) : whole(*q_a_proj), whole(*kv_a_proj_with_mqa)},
      batch.lead(), axis_);
  const at::Tensor q_BTnQ = (q_proj ? projected[0]
                                    : parallel::own_linear(q_a_layernorm->forward(projected[0]),
                                                           q_b_proj->weights(batch), axis_))
                                .unflatten(-1, {heads_, P + R});
  const std::vector<at::Tensor> latent_and_rope =
      projected[1].split_with_sizes({config_.kv_lora_rank, R}, -1);
  const std::vector<at::Tensor> k_and_v =
      parallel::own_linear(kv_a_layernorm->forward(latent_and_rope[0].contiguous()),
                           kv_b_proj->weights(batch), axis_)
          .unflatten(-1, {heads_, P + V})
          .split_with_sizes({P, V}, -1);
  const std::vector<at::Tensor> q = q_BTnQ.split_with_sizes({P, R}, -1);
  const at::Tensor k_rope = rotated(latent_and_rope[1].unsqueeze(2), batch);
  return {.q_BTnQ = at::cat({q[0], rotated(q[1], batch)}, -1),
          .k_BTnQ = at::cat({k_and_v[0], k_rope.expand({-1, -1, heads_, -1})}, -1),
          .v_BTnV = k_and_v[1]};
}

at::Tensor LatentAttention::forward(const at::Tensor& x, const at::Tensor& residual,
                                    const TokenBatch& batch) {
  const Heads own = project(x, batch);
  const int64_t H = config_.core_width(), Q = config_.qk_width(), V = config_.v_head_width;
  // The core divides by sqrt(H).
  const double scale = score_factor_ * std::sqrt(static_cast<double>(H) / static_cast<double>(Q));
  const at::Tensor q_BTnQ = scale == 1 ? own.q_BTnQ : own.q_BTnQ * scale;
  const TensorFunction core = core_of(batch, this, heads_, heads_, batch.reach());
  const at::Tensor out_BTH =
      recompute_if(recompute_core, core,
                   {padded(q_BTnQ, H).flatten(2), padded(own.k_BTnQ, H).flatten(2),
                    padded(own.v_BTnV, H).flatten(2)});
  const at::Tensor out_BTV = out_BTH.unflatten(-1, {heads_, H}).narrow(-1, 0, V).flatten(2);
  return dropout.close_branch(out_BTV, o_proj->weights(batch), residual, axis_, batch);
}

}  // namespace trireme::model
