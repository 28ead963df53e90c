// Turns images into the tokens of a Vision Transformer: a class token and one token for each patch,
// with their positions.
// Source: Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1, equation 1
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/plan.h"
#include "trireme/model/vit/vit_config.h"

namespace trireme::model::inline internal {

// The pixels of each token, in the order of a convolution's weights. A patch's neighbour on its
// right is the next token. The class token has none: zeros.
// Shapes: images [B, C, image_size, image_size] -> [B, T, C * P * P] of `dtype`
at::Tensor patch_rows(const at::Tensor& images, int64_t patch_size, at::ScalarType dtype);

// Every rank holds all parameters and embeds the tokens that it holds between the layers. Under
// sequence parallelism, their gradients are summed over the ranks.
class VitEmbeddings : public torch::nn::Module {
 public:
  VitEmbeddings(const VitConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Shapes: images [B, C, image_size, image_size] -> [B, T, D], or its rows as the tensor axis
  //         holds them
  at::Tensor forward(const at::Tensor& images, const TokenBatch& batch);

  at::Tensor cls_token;            // [1, 1, D]
  at::Tensor position_embeddings;  // [1, T, D]
  at::Tensor weight_DCPP;          // of the convolution that embeds patches
  at::Tensor bias_D;

 private:
  at::Tensor own_rows(const at::Tensor& pixels, const TokenBatch& batch) const;

  parallel::TensorAxis axis_;
};

}  // namespace trireme::model::inline internal
