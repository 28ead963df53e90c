// Attention with grouped queries, causal or not, of a sequence to itself or to that of an encoder,
// and its core, which has no weights.
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; grouped queries: Ainslie et al. 2023,
// arXiv:2305.13245, section 2.2
#pragma once

#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// softmax(q k^T / sqrt(H)) v for each head, over the tokens that `reach` allows, with the scores of
// reach.scores. Query head n reads kv head n / (N/K).
// Shapes: q_BTD [B, T, N * H], k_BTG and v_BTG [B, T, K * H], or [B, S, K * H] if reach.keys is set
//         -> [B, T, N * H]
at::Tensor attention_core(const at::Tensor& q_BTD, const at::Tensor& k_BTG, const at::Tensor& v_BTG,
                          int64_t heads, int64_t kv_heads,
                          const parallel::AttentionReach& reach = {});

// What a layer does with queries, keys, values and, if there are any, reach's distance biases: the
// core over the whole sequences, over those that the context axis divides, or, in generation, over
// what the cache keeps of the layer.
// layer: see KeyCache::attend()
TensorFunction core_of(const TokenBatch& batch, const void* layer, int64_t heads, int64_t kv_heads,
                       const parallel::AttentionReach& reach);

struct AttentionOptions {
  bool bias = false;   // for all four projections, whatever model.attention_bias is
  bool rotary = true;  // whether positions turn queries and keys, if the batch has angles
  // Names of the projections. A name with dots names modules within modules.
  const char* query = "q_proj";
  const char* key = "k_proj";
  const char* value = "v_proj";
  const char* output = "o_proj";
  int64_t window = 0;      // reads the last so many tokens only; 0: all
  double norm_offset = 0;  // what is added to the weights of q_norm and k_norm
  double score_scale = 0;  // factor of the scores; 0: by model.query_scalar
  bool across = false;     // keys and values are of TokenBatch::memory, and every query reads them
};

// Each rank of the tensor axis holds some of the heads.
class Attention : public AttentionBranch {
 public:
  Attention(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
            const AttentionOptions& options = {});
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual,
                     const TokenBatch& batch) override;

  std::shared_ptr<Linear> q_proj;  // [n * H, D], n of N heads
  std::shared_ptr<Linear> k_proj;  // [k * H, D], k of K heads, or all K
  std::shared_ptr<Linear> v_proj;  // [k * H, D]
  std::shared_ptr<Linear> o_proj;  // [D, n * H]
  // [H], of each head; of all heads, the weights of those that this rank has, [n * H] and [k * H].
  // Null without model.qk_norm.
  std::shared_ptr<SharedNorm> q_norm;
  std::shared_ptr<SharedNorm> k_norm;
  at::Tensor sinks_N;  // [n]; undefined without model.attention_sinks

 private:
  // Queries, keys and values of this rank's heads.
  std::vector<at::Tensor> project(const at::Tensor& x, const TokenBatch& batch) const;
  parallel::AttentionReach reach_of(const TokenBatch& batch) const;
  // The rows of a key or value projection that this rank computes: those of the heads that its
  // queries read, or of all.
  parallel::LinearWeight kv_weights(const Linear& projection, const TokenBatch& batch,
                                    bool of_all_heads = false) const;
  // Queries and keys behind their norms, if there are any.
  // Comm: that of split_rms_norm(), if the norms are of all heads
  std::pair<at::Tensor, at::Tensor> normed(const at::Tensor& q_BTD, const at::Tensor& k_BTG) const;
  at::Tensor kv_of_each_head(const at::Tensor& x_BTG) const;

  parallel::TensorAxis axis_;
  int64_t head_width_;
  parallel::AttentionReach reach_;  // window and scores
  int64_t heads_;                   // n
  int64_t kv_heads_;                // those this rank computes
  bool rotary_;
  bool across_;
  bool shares_kv_heads_;  // kv projections are whole on every rank
  int64_t first_kv_row_ = 0;
  bool norms_all_heads_;
  int64_t query_width_;              // N * H
  int64_t key_width_;                // K * H
  std::vector<int64_t> kv_head_of_;  // if shared: each query head's, among those computed
};

}  // namespace trireme::model
