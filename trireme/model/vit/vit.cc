#include "trireme/model/vit/vit.h"

#include <memory>

#include <ATen/ATen.h>

#include "trireme/model/family/init.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/patches.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {

at::Tensor patch_rows(const at::Tensor& images, int64_t patch_size, at::ScalarType dtype) {
  const int64_t B = images.size(0), C = images.size(1), P = patch_size;
  const int64_t side = images.size(2) / P;  // patches in a row of the image
  const at::Tensor pixels =
      at::zeros({B, side * side + 1, C * P * P}, images.options().dtype(dtype));
  pixels.narrow(1, 1, side * side).view({B, side, side, C, P, P}).copy_(view_patches(images, P));
  return pixels;
}

VitEmbeddings::VitEmbeddings(const VitConfig& config, const ModelAxes& axes, at::ScalarType dtype)
    : axis_(axes.tensor) {
  const int64_t D = config.width, P = config.patch_size;
  cls_token = register_parameter("cls_token", new_parameter({1, 1, D}, dtype));
  position_embeddings =
      register_parameter("position_embeddings", new_parameter({1, config.num_tokens(), D}, dtype));
  const auto projection =
      register_at(*this, "patch_embeddings.projection", std::make_shared<torch::nn::Module>());
  weight_DCPP =
      projection->register_parameter("weight", new_parameter({D, config.channels, P, P}, dtype));
  bias_D = projection->register_parameter("bias", new_parameter({D}, dtype));
}

// One product for all tokens. The zeros of the class token give it nothing but its own embedding,
// and the other tokens get the convolution's bias in its place.
at::Tensor VitEmbeddings::forward(const at::Tensor& images, const TokenBatch& batch) {
  const auto weight = [this](const at::Tensor& whole) {
    return parallel::weight_of_rows(whole, axis_);
  };
  const at::Tensor pixels_S = own_token_rows(
      patch_rows(images, weight_DCPP.size(2), weight_DCPP.scalar_type()), batch, axis_);
  const at::Tensor x_SD = at::linear(pixels_S, weight(weight_DCPP).flatten(1));
  const int64_t D = bias_D.size(0);
  const int64_t num_patches = position_embeddings.size(1) - 1;
  const at::Tensor added_TD =
      weight(position_embeddings).squeeze(0) +
      at::cat({weight(cls_token).squeeze(0), weight(bias_D).expand({num_patches, D})});
  if (!axis_.sequence) {
    return x_SD.view({batch.B, batch.T, D}) + added_TD.index_select(0, batch.positions_T);
  }
  const mesh::Range own = axis_.own_rows(batch.B * batch.T);
  return x_SD + added_TD.index_select(
                    0, batch.positions_T.repeat({batch.B}).narrow(0, own.offset, own.size));
}

VitBlock::VitBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                   int64_t layer)
    : TransformerBlock(config, layer) {
  const AttentionOptions names{.bias = true,
                               .query = "attention.query",
                               .key = "attention.key",
                               .value = "attention.value",
                               .output = "output.dense"};
  const GeluOptions gelu{
      .approximation = "none", .up = "intermediate.dense", .down = "output.dense"};
  const auto norm = [&] { return std::make_shared<LayerNorm>(config, axes, dtype); };
  layernorm_before_ = register_module("layernorm_before", norm());
  attention_ =
      register_attention("attention", std::make_shared<Attention>(config, axes, dtype, names));
  layernorm_after_ = register_module("layernorm_after", norm());
  feed_forward_ = register_feed_forward(
      /*name=*/"", std::make_shared<GeluFeedForward>(config, axes, dtype, gelu));
}

at::Tensor VitBlock::compute(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor attended = attend(*attention_, layernorm_before_->forward(x), x, batch);
  return feed_forward(*feed_forward_, layernorm_after_->forward(attended), attended, batch);
}

Vit::Vit(const VitConfig& config, const ModelAxes& axes, const ModelPart& part,
         at::ScalarType dtype)
    : Network(part), dropout_(config.dropout, "embedding") {
  const ModelConfig of_blocks = config.block_config();
  const auto vit = register_module("vit", std::make_shared<torch::nn::Module>());
  if (part.embeds) {
    embeddings_ =
        vit->register_module("embeddings", std::make_shared<VitEmbeddings>(config, axes, dtype));
    add_embedding("embeddings", embeddings_->parameters());
  }
  const auto encoder = vit->register_module("encoder", std::make_shared<torch::nn::Module>());
  add_blocks<VitBlock>(*encoder, "layer", of_blocks, axes, dtype);
  if (!part.has_head) return;
  layernorm_ =
      vit->register_module("layernorm", std::make_shared<LayerNorm>(of_blocks, axes, dtype));
  add_norm("layernorm", layernorm_->parameters());
  classifier = register_module(
      "classifier", std::make_shared<Linear>(config.width, config.classes, /*bias=*/true, dtype));
  add_head("classifier", classifier->parameters());
}

at::Tensor Vit::embed(const at::Tensor& images, const TokenBatch& batch) {
  return dropout_.forward(embeddings_->forward(images, batch), batch);
}

at::Tensor Vit::last_norm(const at::Tensor& x, const TokenBatch& /*batch*/) {
  return layernorm_->forward(x);
}

}  // namespace trireme::model
