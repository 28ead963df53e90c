#include "trireme/model/bert/bert.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/family/init.h"
#include "trireme/parallel/tensor/branch_rows.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {

BertBlock::BertBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                     int64_t layer)
    : TransformerBlock(config, layer) {
  const AttentionOptions names{.bias = true,
                               .query = "self.query",
                               .key = "self.key",
                               .value = "self.value",
                               .output = "output.dense"};
  const GeluOptions gelu{
      .approximation = "none", .up = "intermediate.dense", .down = "output.dense"};
  const auto norm = [&] { return std::make_shared<LayerNorm>(config, axes, dtype); };
  attention_ =
      register_attention("attention", std::make_shared<Attention>(config, axes, dtype, names));
  attention_norm_ = register_at(*attention_, "output.LayerNorm", norm());
  feed_forward_ = register_feed_forward(
      /*name=*/"", std::make_shared<GeluFeedForward>(config, axes, dtype, gelu));
  norm_ = register_at(*this, "output.LayerNorm", norm());
}

// The branches read views: the gradients of their uses are summed before the residual stream's is
// added, as when they are recomputed.
at::Tensor BertBlock::compute(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor y = attention_norm_->forward(attend(*attention_, x.view_as(x), x, batch));
  return norm_->forward(feed_forward(*feed_forward_, y.view_as(y), y, batch));
}

BertEmbeddings::BertEmbeddings(const ModelConfig& config, const ModelAxes& axes,
                               at::ScalarType dtype)
    : axis_(axes.tensor) {
  words = register_module("word_embeddings", std::make_shared<TokenEmbedding>(config, axes, dtype));
  positions = register_module("position_embeddings",
                              std::make_shared<PositionEmbedding>(config, axes, dtype));
  types_YD =
      register_module("token_type_embeddings", std::make_shared<torch::nn::Module>())
          ->register_parameter("weight", new_parameter({config.token_types, config.width}, dtype));
  norm = register_module("LayerNorm", std::make_shared<LayerNorm>(config, axes, dtype));
}

at::Tensor BertEmbeddings::forward(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  const at::Tensor first_D = parallel::weight_of_rows(types_YD, axis_).select(0, 0);
  return positions->forward(words->forward(tokens_BT) + first_D, batch);
}

BertHead::BertHead(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype)
    : axis_(axes.tensor) {
  const int64_t v = TensorCuts(config, axis_.size()).vocab_of(axis_.rank()).size;
  bias_V = register_parameter("bias", new_parameter({v}, dtype));
  dense = register_at(*this, "transform.dense",
                      std::make_shared<Linear>(config.width, config.width, /*bias=*/true, dtype));
  norm =
      register_at(*this, "transform.LayerNorm", std::make_shared<LayerNorm>(config, axes, dtype));
}

at::Tensor BertHead::forward(const at::Tensor& x) {
  const at::Tensor hidden = at::linear(x, parallel::weight_of_rows(dense->weight, axis_),
                                       parallel::weight_of_rows(dense->bias, axis_));
  return norm->forward(at::gelu(hidden));
}

std::vector<at::Tensor> BertHead::transform_parameters() const {
  return {dense->weight, dense->bias, norm->weight_D, norm->bias_D};
}

BertPooler::BertPooler(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype)
    : axis_(axes.tensor),
      sequence_length_(config.sequence_length),
      dropout_(config.dropout, "classifier") {
  dense = register_module(
      "dense", std::make_shared<Linear>(config.width, config.width, /*bias=*/true, dtype));
}

at::Tensor BertPooler::forward(const at::Tensor& x, const TokenBatch& batch) {
  const bool has_first = batch.context == nullptr || batch.context->group.rank() == 0;
  const at::Tensor texts_B =
      at::arange(has_first ? batch.B : 0, at::device(x.device()).dtype(at::kLong));
  const at::Tensor first_BD = parallel::pick_rows(x, texts_B * batch.T, batch.B * batch.T, axis_);
  const at::Tensor pooled_BD = at::linear(first_BD, dense->weight, dense->bias).tanh();
  if (!dropout_.drops(batch)) return pooled_BD;
  const at::Tensor rows_B = (texts_B + batch.training->first_sample) * sequence_length_;
  return dropout_.forward(pooled_BD, rows_B, batch);
}

Bert::Bert(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
           at::ScalarType dtype)
    : Network(part), dropout_(config.dropout, "embedding") {
  const auto bert = register_module("bert", std::make_shared<torch::nn::Module>());
  if (part.embeds) {
    embeddings_ =
        bert->register_module("embeddings", std::make_shared<BertEmbeddings>(config, axes, dtype));
    add_embedding("embeddings", {embeddings_->words->weight_VD, embeddings_->positions->weight_TD,
                                 embeddings_->types_YD});
    if (config.classes == 0) tie_head(embeddings_->words->weight_VD);
    add_embedding_norm("embeddings.LayerNorm", embeddings_->norm->parameters());
  }
  const auto encoder = bert->register_module("encoder", std::make_shared<torch::nn::Module>());
  add_blocks<BertBlock>(*encoder, "layer", config, axes, dtype);
  if (!part.has_head) return;
  if (config.classes > 0) {
    pooler_ = bert->register_module("pooler", std::make_shared<BertPooler>(config, axes, dtype));
    const auto classifier = register_module(
        "classifier", std::make_shared<Linear>(config.width, config.classes, /*bias=*/true, dtype));
    add_norm("pooler", pooler_->parameters());
    add_head("classifier", classifier->weight);
    add_head_bias("classifier", classifier->bias);
    return;
  }
  head_ = register_at(*this, "cls.predictions", std::make_shared<BertHead>(config, axes, dtype));
  add_norm("transform", head_->transform_parameters());
  add_head_bias("decoder", head_->bias_V);
}

at::Tensor Bert::embed(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  return embeddings_->forward(tokens_BT, batch);
}

at::Tensor Bert::embedding_norm(const at::Tensor& x, const TokenBatch& batch) {
  return dropout_.forward(embeddings_->norm->forward(x), batch);
}

at::Tensor Bert::last_norm(const at::Tensor& x, const TokenBatch& batch) {
  return pooler_ ? pooler_->forward(x, batch) : head_->forward(x);
}

}  // namespace trireme::model
