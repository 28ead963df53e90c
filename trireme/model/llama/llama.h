// Llama: RMSNorm before each branch, rotary positions, grouped queries, SwiGLU, no biases. With
// experts it is Mixtral: the feed-forward of a sparse block is a mixture of experts.
// Sources: Touvron et al. 2023, arXiv:2302.13971, section 2.2; Jiang et al. 2024, arXiv:2401.04088
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "trireme/model/clip/image_input.h"
#include "trireme/model/experts/expert_feed_forward.h"
#include "trireme/model/family/family.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/rotary_decoder.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// x + attention(norm(x)), then the same with the feed-forward. model.residual_scale is a factor of
// what each adds, and model.branch_norms says whether their inputs, outputs or both have norms.
class LlamaBlock : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  LlamaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

 private:
  at::Tensor compute(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<AttentionBranch> self_attn_;
  std::shared_ptr<FeedForward> mlp_;            // null: the block is sparse
  std::shared_ptr<ExpertFeedForward> experts_;  // null: it is dense
  BranchForm attention_form_;
  BranchForm feed_forward_form_;
};

class Llama : public RotaryDecoder {
 public:
  Llama(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
        at::ScalarType dtype);
  void set_recompute(const RecomputePlan& plan) override;

 private:
  // Puts the features of images in the places of their tokens.
  at::Tensor insert(const at::Tensor& x, const TokenBatch& batch) override;

  parallel::TensorAxis axis_;
  std::unique_ptr<ImageInput> images_;  // null: text only, or the part does not embed
  std::vector<size_t> image_units_;
};

// The plan splits matrices by heads, feed-forward rows and vocabulary. Norms are whole on every
// rank.
const Family& llama_family();
// The same with at least one sparse block.
const Family& mixtral_family();

}  // namespace trireme::model
