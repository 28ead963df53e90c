// The Vision Transformer: blocks of layer norm before each branch, GELU and biases, without
// causality, between the embedding of patches and a classifier that reads the class token.
// Source: Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1; the embedding: equation 1
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/network.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/transformer_block.h"
#include "trireme/model/vit/vit_config.h"
#include "trireme/model/vit/vit_plan.h"

namespace trireme::model {

// The pixels of each token, in the order of a convolution's weights. A patch's neighbour on its
// right is the next token. The class token has none: zeros.
// Shapes: images [B, C, image_size, image_size] -> [B, T, C * P * P] of `dtype`
at::Tensor patch_rows(const at::Tensor& images, int64_t patch_size, at::ScalarType dtype);

// Names within the embeddings; a name with dots names modules within modules.
struct VitEmbeddingNames {
  const char* class_token = "cls_token";
  const char* positions = "position_embeddings";
  const char* patches = "patch_embeddings.projection";
  bool has_bias = true;    // of the convolution
  bool is_batched = true;  // class token and positions have a first dimension of 1
};
inline constexpr VitEmbeddingNames kClipEmbeddings{.class_token = "class_embedding",
                                                   .positions = "position_embedding.weight",
                                                   .patches = "patch_embedding",
                                                   .has_bias = false,
                                                   .is_batched = false};

// Every rank holds all parameters and embeds the tokens that it holds between the layers. Under
// sequence parallelism, their gradients are summed over the ranks.
class VitEmbeddings : public torch::nn::Module {
 public:
  VitEmbeddings(const VitConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                const VitEmbeddingNames& names = {});
  // Shapes: images [B, C, image_size, image_size] -> [B, T, D], or its rows as the tensor axis
  //         holds them
  at::Tensor forward(const at::Tensor& images, const TokenBatch& batch);

  at::Tensor cls_token;            // [1, 1, D] or [D]
  at::Tensor position_embeddings;  // [1, T, D] or [T, D]
  at::Tensor weight_DCPP;          // of the convolution that embeds patches
  at::Tensor bias_D;               // undefined: none

 private:
  parallel::TensorAxis axis_;
};

// x + attention(norm(x)), then the same with the feed-forward.
class VitBlock : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  VitBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer,
           const VitBlockNames& names = {});

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
  at::Tensor last_norm(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<VitEmbeddings> embeddings_;  // null: the part does not embed
  Dropout dropout_;                            // of the embeddings
  std::shared_ptr<LayerNorm> layernorm_;       // null: the part has no head
};

}  // namespace trireme::model
