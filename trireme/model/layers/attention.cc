#include "trireme/model/layers/attention.h"

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/cache/key_cache.h"
#include "trireme/model/family/init.h"
#include "trireme/model/layers/philox.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/layers/rotary.h"
#include "trireme/parallel/tensor/split_layers.h"
#include "trireme/parallel/tensor/split_norm.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {
namespace {

// [B, T, K * H] -> [B, N, T, H]. Each kv head is copied for its N/K query heads.
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

parallel::ScoreForm score_form(const AttentionConfig& config) {
  const auto scalar = static_cast<double>(config.query_scalar);
  return {.scale = config.query_scalar > 0 ? 1 / std::sqrt(scalar) : 0,
          .softcap = config.attention_softcap};
}

}  // namespace

at::Tensor attention_core(const at::Tensor& q_BTD, const at::Tensor& k_BTG, const at::Tensor& v_BTG,
                          int64_t heads, int64_t kv_heads, const parallel::AttentionReach& reach) {
  // The kernels of the CPU read kv heads where they lie, and know where a document begins.
  const bool hides_nothing = reach.window == 0 || reach.window >= q_BTD.size(1);
  const bool is_plain = hides_nothing && reach.scores.softcap == 0 && !reach.sinks_N.defined() &&
                        !reach.distance_bias_NR.defined();
  if (reach.documents_BT.defined() || q_BTD.is_cpu() || !is_plain)
    return parallel::whole_attention(q_BTD, k_BTG, v_BTG, heads, kv_heads, reach);
  const int64_t copies = heads / kv_heads;
  const at::Tensor q_BNTH = split_heads(q_BTD, heads, 1);
  const at::Tensor k_BNTH = split_heads(k_BTG, kv_heads, copies);
  const at::Tensor v_BNTH = split_heads(v_BTG, kv_heads, copies);
  const at::Tensor out_BNTH = at::scaled_dot_product_attention(
      q_BNTH, k_BNTH, v_BNTH, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/reach.causal,
      reach.scores.scale_of(q_BNTH.size(-1)));
  return out_BNTH.transpose(1, 2).reshape(q_BTD.sizes());
}

TensorFunction core_of(const TokenBatch& batch, const void* layer, int64_t heads, int64_t kv_heads,
                       const parallel::AttentionReach& reach) {
  return [context = batch.context, cached = batch.cached, layer, heads, kv_heads,
          reach](const std::vector<at::Tensor>& in) {
    parallel::AttentionReach own = reach;
    if (in.size() > 3) own.distance_bias_NR = in[3];
    if (cached) {
      return cached->cache->attend(layer, in[0], in[1], in[2], heads, kv_heads, own, cached->runs);
    }
    if (!context) return attention_core(in[0], in[1], in[2], heads, kv_heads, own);
    return parallel::context_attention(in[0], in[1], in[2], heads, kv_heads, *context, own);
  };
}

Attention::Attention(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                     const AttentionOptions& options)
    : axis_(axes.tensor),
      head_width_(config.head_width()),
      reach_{.window = options.window, .scores = score_form(config.attention)},
      rotary_(options.rotary),
      across_(options.across),
      norms_all_heads_(config.attention.norms_all_heads()),
      query_width_(config.heads * config.head_width()),
      key_width_(config.kv_heads * config.head_width()) {
  if (options.score_scale > 0) reach_.scores.scale = options.score_scale;
  const TensorCuts cuts(config, axis_.size());
  const mesh::Range own = cuts.heads_of(axis_.rank());
  const mesh::Range kv = cuts.kv_heads_of(axis_.rank(), config);
  heads_ = own.size;
  kv_heads_ = kv.size;
  shares_kv_heads_ = cuts.kv_heads.empty();
  if (shares_kv_heads_) {
    first_kv_row_ = kv.offset * head_width_;
    for (int64_t head = own.offset; head < own.offset + own.size; ++head) {
      kv_head_of_.push_back(head / (config.heads / config.kv_heads) - kv.offset);
    }
  }
  const int64_t D = config.width;
  const int64_t kv_width = (shares_kv_heads_ ? config.kv_heads : kv.size) * head_width_;
  const bool qkv_bias = options.bias || config.attention.attention_bias;
  const auto linear = [&](const char* path, int64_t in, int64_t out, bool bias) {
    return register_at(*this, path, std::make_shared<Linear>(in, out, bias, dtype));
  };
  q_proj = linear(options.query, D, heads_ * head_width_, qkv_bias);
  k_proj = linear(options.key, D, kv_width, qkv_bias);
  v_proj = linear(options.value, D, kv_width, qkv_bias);
  o_proj = linear(options.output, heads_ * head_width_, D,
                  options.bias || config.attention.attention_output_bias);
  if (config.attention.attention_sinks)
    sinks_N = register_parameter("sinks", new_parameter({heads_}, dtype));
  if (!config.attention.qk_norm) return;
  const auto norm = [&](const char* name, int64_t own_width) {
    return register_module(
        name, std::make_shared<SharedNorm>(norms_all_heads_ ? own_width : head_width_,
                                           config.norm_epsilon, axis_, dtype, options.norm_offset));
  };
  q_norm = norm("q_norm", heads_ * head_width_);
  k_norm = norm("k_norm", kv_width);
}

parallel::LinearWeight Attention::kv_weights(const Linear& projection, const TokenBatch& batch,
                                             bool of_all_heads) const {
  parallel::LinearWeight own = projection.weights(batch);
  if (!shares_kv_heads_) return own;
  const auto rows = [this, of_all_heads](const at::Tensor& whole) {
    if (!whole.defined()) return whole;
    const at::Tensor shared = parallel::replicated_weight(whole, axis_);
    return of_all_heads ? shared : shared.narrow(0, first_kv_row_, kv_heads_ * head_width_);
  };
  own.weight = rows(own.weight);
  if (own.codes.defined() && !of_all_heads)
    own.codes = own.codes.narrow_rows(first_kv_row_, kv_heads_ * head_width_);
  own.bias = rows(own.bias);
  own.adapter.b = rows(own.adapter.b);
  own.adapter.magnitude = rows(own.adapter.magnitude);
  return own;
}

// The kv head of each query head: [B, T, k * H] -> [B, T, n * H]. Needed when kv heads are shared,
// because a rank's query heads may then fill only part of a group. Otherwise x unchanged.
at::Tensor Attention::kv_of_each_head(const at::Tensor& x_BTG) const {
  if (!shares_kv_heads_) return x_BTG;
  const at::Tensor index = at::tensor(kv_head_of_, at::kLong).to(x_BTG.device());
  return x_BTG.unflatten(2, {kv_heads_, head_width_}).index_select(2, index).flatten(2);
}

std::pair<at::Tensor, at::Tensor> Attention::normed(const at::Tensor& q_BTD,
                                                    const at::Tensor& k_BTG) const {
  if (!q_norm) return {q_BTD, k_BTG};
  if (!norms_all_heads_ || axis_.size() == 1)
    return {q_norm->forward(q_BTD), k_norm->forward(k_BTG)};
  std::vector<parallel::SplitNorm> norms{{q_BTD, q_norm->weight_H, query_width_}};
  if (!shares_kv_heads_) norms.push_back({k_BTG, k_norm->weight_H, key_width_});
  const std::vector<at::Tensor> results =
      parallel::split_rms_norm(norms, q_norm->epsilon(), q_norm->offset(), axis_);
  if (!shares_kv_heads_) return {results[0], results[1]};
  // Every rank has the keys of all heads.
  return {results[0], k_norm->forward(k_BTG).narrow(-1, first_kv_row_, kv_heads_ * head_width_)};
}

namespace {

// The batch with the memory's rows in place of its own, for adapters that drop some of what they
// read.
TokenBatch with_rows_of_memory(const TokenBatch& batch, const parallel::TensorAxis& axis) {
  TokenBatch result = batch;
  if (batch.dropout == nullptr) return result;
  RandomDraw draw = *batch.dropout;
  const at::Tensor memory_S =
      batch.memory_split->positions(batch.context ? batch.context->group.rank() : 0)
          .to(batch.positions_T.device());
  const at::Tensor first_B =  // of each sequence, the number of its row at position 0
      draw.whole_rows_S.view({batch.B, batch.T}).select(1, 0) - batch.positions_T.select(0, 0);
  draw.whole_rows_S = (first_B.unsqueeze(1) + memory_S).flatten();
  const int64_t num_rows = draw.whole_rows_S.numel();
  const mesh::Range own = axis.sequence ? axis.own_rows(num_rows) : mesh::Range{0, num_rows};
  draw.rows_S = draw.whole_rows_S.narrow(0, own.offset, own.size);
  result.dropout = std::make_shared<const RandomDraw>(std::move(draw));
  return result;
}

}  // namespace

std::vector<at::Tensor> Attention::project(const at::Tensor& x, const TokenBatch& batch) const {
  std::optional<TokenBatch> of_memory;  // outlives the weights, which refer to it
  if (across_) of_memory = with_rows_of_memory(batch, axis_);
  const TokenBatch& read = of_memory ? *of_memory : batch;
  const parallel::LinearWeight q = q_proj->weights(batch),
                               k = kv_weights(*k_proj, read, norms_all_heads_),
                               v = kv_weights(*v_proj, read);
  if (!across_) return parallel::column_linear(x, {q, k, v}, batch.lead(), axis_);
  std::vector<at::Tensor> qkv = parallel::column_linear(x, {q}, batch.lead(), axis_);
  // A view: the gradients of this layer's uses are summed before those of other layers are added,
  // as when it is recomputed.
  const at::Tensor memory = batch.memory.view_as(batch.memory);
  for (const at::Tensor& kv :
       parallel::column_linear(memory, {k, v}, {batch.B, batch.memory_T}, axis_)) {
    qkv.push_back(kv);
  }
  return qkv;
}

parallel::AttentionReach Attention::reach_of(const TokenBatch& batch) const {
  parallel::AttentionReach reach = batch.reach();
  reach.window = reach_.window;
  reach.scores = reach_.scores;
  reach.sinks_N = sinks_N;
  if (across_) {
    reach.causal = false;
    reach.keys = *batch.memory_split;
  } else {
    reach.distance_bias_NR = batch.distance_bias_NR;
  }
  return reach;
}

namespace {

// In generation: what each text's queries read of its prompt, whose keys and values the cache
// keeps.
at::Tensor read_prompts(const Attention& layer, const at::Tensor& q_1nD, const TokenBatch& batch,
                        const parallel::TensorAxis& axis, int64_t heads, int64_t kv_heads,
                        parallel::AttentionReach reach) {
  const auto keys_and_values = [&](const at::Tensor& memory_1SD) {
    const std::vector<at::Tensor> kv = parallel::column_linear(
        memory_1SD, {layer.k_proj->weights(batch), layer.v_proj->weights(batch)},
        {1, memory_1SD.size(1)}, axis);
    return KeyCache::KeysAndValues{kv[0], kv[1]};
  };
  std::vector<at::Tensor> out;
  int64_t row = 0;
  for (const CachedRun& run : batch.cached->runs) {
    const auto& [k_1SG, v_1SG] = batch.cached->cache->of_memory(&layer, run.text, keys_and_values);
    reach.keys = parallel::SequenceSplit(k_1SG.size(1), 1, parallel::SequenceOrder::kContiguous);
    out.push_back(
        attention_core(q_1nD.narrow(1, row, run.count), k_1SG, v_1SG, heads, kv_heads, reach));
    row += run.count;
  }
  return out.empty() ? q_1nD : at::cat(out, 1);
}

}  // namespace

at::Tensor Attention::forward(const at::Tensor& x, const at::Tensor& residual,
                              const TokenBatch& batch) {
  if (across_ && batch.cached) {
    TRIREME_ASSERT(!q_norm && !shares_kv_heads_, "attention across with norms or shared heads");
    const at::Tensor q_1nD =
        parallel::column_linear(x, {q_proj->weights(batch)}, batch.lead(), axis_).front();
    const at::Tensor out_1nD = read_prompts(*this, q_1nD, batch, axis_, heads_, kv_heads_,
                                            {.causal = false, .scores = reach_.scores});
    return dropout.close_branch(out_1nD, o_proj->weights(batch), residual, axis_, batch);
  }
  const std::vector<at::Tensor> qkv = project(x, batch);
  auto [q_BTD, k_BTG] = normed(qkv[0], qkv[1]);
  const bool is_local = reach_.window > 0 && batch.local_cos_TH.defined();
  const at::Tensor& cos_TH = is_local ? batch.local_cos_TH : batch.cos_TH;
  const at::Tensor& sin_TH = is_local ? batch.local_sin_TH : batch.sin_TH;
  if (rotary_ && cos_TH.defined()) {
    q_BTD = apply_rotary(q_BTD, cos_TH, sin_TH, head_width_);
    k_BTG = apply_rotary(k_BTG, cos_TH, sin_TH, head_width_);
  }
  const int64_t kv_heads = shares_kv_heads_ ? heads_ : kv_heads_;
  const parallel::AttentionReach reach = reach_of(batch);
  const TensorFunction core = core_of(batch, this, heads_, kv_heads, reach);
  std::vector<at::Tensor> inputs{q_BTD, kv_of_each_head(k_BTG), kv_of_each_head(qkv[2])};
  if (reach.distance_bias_NR.defined()) inputs.push_back(reach.distance_bias_NR);
  const at::Tensor out_BTD = recompute_if(recompute_core, core, inputs);
  return dropout.close_branch(out_BTD, o_proj->weights(batch), residual, axis_, batch);
}

}  // namespace trireme::model
