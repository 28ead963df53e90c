#include "trireme/model/vit/vit.h"

#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "trireme/model/family/init.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/patches.h"
#include "trireme/parallel/tensor/split_layers.h"
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

namespace {

// Registers a parameter under a path, in modules that are made for it.
at::Tensor register_parameter_at(torch::nn::Module& parent, const std::string& path,
                                 const at::Tensor& parameter) {
  const size_t dot = path.rfind('.');
  if (dot == path.npos) return parent.register_parameter(path, parameter);
  const auto folder =
      register_at(parent, path.substr(0, dot), std::make_shared<torch::nn::Module>());
  return folder->register_parameter(path.substr(dot + 1), parameter);
}

}  // namespace

VitEmbeddings::VitEmbeddings(const VitConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                             const VitEmbeddingNames& names)
    : axis_(axes.tensor) {
  const int64_t D = config.width, P = config.patch_size, T = config.num_tokens();
  const auto make = [&](int64_t rows) {
    if (names.is_batched) return new_parameter({1, rows, D}, dtype);
    return rows == 1 ? new_parameter({D}, dtype) : new_parameter({rows, D}, dtype);
  };
  cls_token = register_parameter_at(*this, names.class_token, make(1));
  position_embeddings = register_parameter_at(*this, names.positions, make(T));
  const auto projection = register_at(*this, names.patches, std::make_shared<torch::nn::Module>());
  weight_DCPP =
      projection->register_parameter("weight", new_parameter({D, config.channels, P, P}, dtype));
  if (names.has_bias) bias_D = projection->register_parameter("bias", new_parameter({D}, dtype));
}

// One product for all tokens. The zeros of the class token give it nothing but its own embedding,
// and the other tokens get the convolution's bias in its place.
at::Tensor VitEmbeddings::forward(const at::Tensor& images, const TokenBatch& batch) {
  const auto weight = [this](const at::Tensor& whole) {
    return parallel::weight_of_rows(whole, axis_);
  };
  const at::Tensor pixels_S = own_token_rows(
      patch_rows(images, weight_DCPP.size(2), weight_DCPP.scalar_type()), batch, axis_);
  const at::Tensor x_SD = parallel::own_linear(pixels_S, {weight(weight_DCPP).flatten(1)}, axis_);
  const int64_t D = weight_DCPP.size(0);
  const at::Tensor positions_TD = weight(position_embeddings).view({-1, D});
  const int64_t num_patches = positions_TD.size(0) - 1;
  const at::Tensor of_patches_D =
      bias_D.defined() ? weight(bias_D) : at::zeros({D}, x_SD.options());
  const at::Tensor added_TD = positions_TD + at::cat({weight(cls_token).view({1, D}),
                                                      of_patches_D.expand({num_patches, D})});
  if (!axis_.sequence) {
    return x_SD.view({batch.B, batch.T, D}) + added_TD.index_select(0, batch.positions_T);
  }
  const mesh::Range own = axis_.own_rows(batch.B * batch.T);
  return x_SD + added_TD.index_select(
                    0, batch.positions_T.repeat({batch.B}).narrow(0, own.offset, own.size));
}

VitBlock::VitBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                   int64_t layer, const VitBlockNames& names)
    : TransformerBlock(config, layer) {
  const AttentionOptions attention{.bias = true,
                                   .query = names.query,
                                   .key = names.key,
                                   .value = names.value,
                                   .output = names.output};
  const GeluOptions gelu{.approximation = names.gelu, .up = names.up, .down = names.down};
  const auto norm = [&] { return std::make_shared<LayerNorm>(config, axes, dtype); };
  layernorm_before_ = register_module(names.first_norm, norm());
  attention_ = register_attention(names.attention,
                                  std::make_shared<Attention>(config, axes, dtype, attention));
  layernorm_after_ = register_module(names.second_norm, norm());
  feed_forward_ = register_feed_forward(
      names.feed_forward, std::make_shared<GeluFeedForward>(config, axes, dtype, gelu));
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
