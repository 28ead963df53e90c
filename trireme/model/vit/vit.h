// The Vision Transformer: blocks of layer norm before each branch, GELU and biases, without
// causality, between the embedding of patches and a classifier that reads the class token.
// Source: Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1
#pragma once

#include <memory>

#include "trireme/model/family/network.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/layer_norm.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/transformer_block.h"
#include "trireme/model/vit/vit_config.h"
#include "trireme/model/vit/vit_embeddings.h"

namespace trireme::model::inline internal {

// x + attention(norm(x)), then the same with the feed-forward.
class VitBlock : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  VitBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

 private:
  at::Tensor compute(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<LayerNorm> layernorm_before_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<LayerNorm> layernorm_after_;
  std::shared_ptr<GeluFeedForward> feed_forward_;
};

// Embeddings, blocks, norm and classifier, as far as the part has them. Its input is images.
class Vit : public Network {
 public:
  Vit(const VitConfig& config, const ModelAxes& axes, const ModelPart& part, at::ScalarType dtype);

  // Null: the part has no head. Every rank of the tensor axis holds it whole.
  std::shared_ptr<Linear> classifier;  // [classes, D]

 private:
  at::Tensor embed(const at::Tensor& images, const TokenBatch& batch) override;
  at::Tensor last_norm(const at::Tensor& x) override;

  std::shared_ptr<VitEmbeddings> embeddings_;  // null: the part does not embed
  Dropout dropout_;                            // of the embeddings
  std::shared_ptr<LayerNorm> layernorm_;       // null: the part has no head
};

}  // namespace trireme::model::inline internal
