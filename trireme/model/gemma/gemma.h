// Gemma 2 and 3: norms before and after each branch, whose weights are stored less one, grouped
// queries, GeGLU, an embedding scaled by sqrt(D), and alternating windows. Gemma 2 caps the scores
// of attention and the logits; Gemma 3 norms queries and keys instead, and layers with a window
// have rotary positions of their own.
// Sources: Riviere et al. 2024, arXiv:2408.00118, section 2; Kamath et al. 2025, arXiv:2503.19786,
//          section 2
#pragma once

#include <memory>

#include "trireme/model/family/family.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/rotary_decoder.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// x + norm(attention(norm(x))), then the same with the feed-forward.
class GemmaBlock : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  GemmaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

 private:
  at::Tensor compute(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<Attention> self_attn_;
  std::shared_ptr<FeedForward> mlp_;
  BranchForm attention_form_;
  BranchForm feed_forward_form_;
};

class Gemma : public RotaryDecoder {
 public:
  Gemma(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
        at::ScalarType dtype);
};

// The plan splits as llama's.
const Family& gemma_family();

}  // namespace trireme::model
