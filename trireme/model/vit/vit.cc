#include "trireme/model/vit/vit.h"

namespace trireme::model::inline internal {

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

at::Tensor Vit::last_norm(const at::Tensor& x) { return layernorm_->forward(x); }

}  // namespace trireme::model::inline internal
