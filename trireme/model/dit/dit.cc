#include "trireme/model/dit/dit.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/mesh/probe.h"
#include "trireme/model/family/init.h"
#include "trireme/model/layers/patches.h"
#include "trireme/parallel/tensor/split_layers.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {
namespace {

constexpr double kEpsilonOfNorms = 1e-6;  // of all but those before feed-forwards
constexpr double kLongestPeriod = 10000;

}  // namespace

at::Tensor patch_positions(int64_t side, int64_t width) {
  const int64_t waves = width / 4;
  const at::Tensor numbers = at::arange(waves, at::kDouble);
  const at::Tensor rates =
      at::pow(kLongestPeriod, numbers / static_cast<double>(waves)).reciprocal();
  const at::Tensor places = at::outer(at::arange(side, at::kDouble), rates);
  const at::Tensor waves_SW = at::cat({places.sin(), places.cos()}, 1);  // [side, width / 2]
  const std::vector<int64_t> shape = {side, side, width / 2};
  // The column comes first.
  const at::Tensor table =
      at::cat({waves_SW.unsqueeze(0).expand(shape), waves_SW.unsqueeze(1).expand(shape)}, 2);
  return table.to(at::kFloat).to(at::kDouble).view({side * side, width});
}

at::Tensor timestep_waves(const at::Tensor& timesteps_B) {
  constexpr int64_t kHalf = kTimestepWaves / 2;
  const at::Tensor exponents =
      at::arange(kHalf, timesteps_B.options().dtype(at::kFloat)) * -std::log(kLongestPeriod);
  const at::Tensor rates = (exponents / static_cast<double>(kHalf - 1)).exp();
  const at::Tensor angles = timesteps_B.to(at::kFloat).unsqueeze(1) * rates;
  return at::cat({angles.cos(), angles.sin()}, 1);
}

DitRows Conditioning::split(const at::Tensor& rows, const TokenBatch& batch) const {
  const int64_t num_tokens = rows.size(0) - batch.B;
  const at::Tensor tokens = rows.narrow(0, 0, num_tokens);
  return {axis_.sequence ? tokens : tokens.view({batch.B, batch.T, rows.size(1)}),
          rows.narrow(0, num_tokens, batch.B)};
}

at::Tensor Conditioning::join(const at::Tensor& tokens, const at::Tensor& c_BD) {
  return at::cat({parallel::view_rows(tokens), c_BD});
}

at::Tensor Conditioning::apply(const Linear& linear, const at::Tensor& x) const {
  return at::linear(x, parallel::weight_of_rows(linear.weight, axis_),
                    parallel::weight_of_rows(linear.bias, axis_));
}

std::vector<at::Tensor> Conditioning::modulations(const at::Tensor& c_BD, const Linear& linear,
                                                  int64_t count, const TokenBatch& batch) const {
  const at::Tensor all = apply(linear, at::silu(c_BD));
  if (!axis_.sequence) return all.unsqueeze(1).chunk(count, 2);
  const mesh::Range own = axis_.own_rows(batch.B * batch.T);
  const at::Tensor image_of_row =
      at::arange(own.offset, own.offset + own.size, c_BD.options().dtype(at::kLong))
          .div(std::max<int64_t>(batch.T, 1), "floor");
  return all.index_select(0, image_of_row).chunk(count, 1);
}

at::Tensor modulated_norm(const at::Tensor& x, double epsilon, const at::Tensor& shift,
                          const at::Tensor& scale) {
  const at::Tensor normed = at::layer_norm(x, {x.size(-1)}, {}, {}, epsilon);
  return normed * (1 + scale) + shift;
}

DitEmbeddings::DitEmbeddings(torch::nn::Module& network, const DitConfig& config,
                             const ModelAxes& axes, at::ScalarType dtype)
    : axis_(axes.tensor), conditioning_(axes.tensor) {
  const int64_t D = config.width, P = config.patch_size;
  const auto projection =
      register_at(network, "pos_embed.proj", std::make_shared<torch::nn::Module>());
  weight_DCPP_ =
      projection->register_parameter("weight", new_parameter({D, config.channels, P, P}, dtype));
  bias_D_ = projection->register_parameter("bias", new_parameter({D}, dtype));
  timestep_in_ = register_at(network, "emb.timestep_embedder.linear_1",
                             std::make_shared<Linear>(kTimestepWaves, D, /*bias=*/true, dtype));
  timestep_out_ = register_at(network, "emb.timestep_embedder.linear_2",
                              std::make_shared<Linear>(D, D, /*bias=*/true, dtype));
  class_table_ = register_at(network, "emb.class_embedder.embedding_table",
                             std::make_shared<torch::nn::Module>())
                     ->register_parameter("weight", new_parameter({config.classes + 1, D}, dtype));
  positions_TD_ = patch_positions(config.image_size / P, D);
}

std::vector<at::Tensor> DitEmbeddings::parameters() const {
  return {weight_DCPP_,          bias_D_,
          timestep_in_->weight,  timestep_in_->bias,
          timestep_out_->weight, timestep_out_->bias,
          class_table_};
}

at::Tensor DitEmbeddings::tokens(const at::Tensor& images, const TokenBatch& batch) const {
  const at::ScalarType dtype = weight_DCPP_.scalar_type();
  const int64_t B = images.size(0), T = positions_TD_.size(0),
                K = weight_DCPP_.numel() / bias_D_.numel();
  const at::Tensor pixels_BTK =
      view_patches(images.to(dtype), weight_DCPP_.size(2)).reshape({B, T, K});
  const at::Tensor pixels_S = own_token_rows(pixels_BTK, batch, axis_);
  const at::Tensor x_SD =
      parallel::own_linear(pixels_S,
                           {parallel::weight_of_rows(weight_DCPP_, axis_).flatten(1),
                            parallel::weight_of_rows(bias_D_, axis_)},
                           axis_);
  const at::Tensor positions_TD = positions_TD_.to(images.device(), dtype);
  at::Tensor places_S = batch.positions_T.repeat({batch.B});
  if (axis_.sequence) {
    const mesh::Range own = axis_.own_rows(batch.B * batch.T);
    places_S = places_S.narrow(0, own.offset, own.size);
  }
  return x_SD + positions_TD.index_select(0, places_S);
}

at::Tensor DitEmbeddings::conditioning(const Conditions& conditions) const {
  const at::Tensor waves = timestep_waves(conditions.timesteps_B).to(weight_DCPP_.scalar_type());
  const at::Tensor hidden = at::silu(conditioning_.apply(*timestep_in_, waves));
  return conditioning_.apply(*timestep_out_, hidden) +
         parallel::weight_of_rows(class_table_, axis_).index_select(0, conditions.classes_B);
}

at::Tensor DitEmbeddings::forward(const at::Tensor& images, const Conditions& conditions,
                                  const TokenBatch& batch) const {
  const at::Tensor c_BD = conditioning(conditions);
  // Its values alone: ranks with a part of the tokens have a part of its gradient.
  if (batch.training) verify::probe("conditioning", c_BD.detach());
  return Conditioning::join(tokens(images, batch), c_BD);
}

DitBlock::DitBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                   int64_t layer)
    : TransformerBlock(config, layer), epsilon_(config.norm_epsilon), conditioning_(axes.tensor) {
  const AttentionOptions names{
      .bias = true, .query = "to_q", .key = "to_k", .value = "to_v", .output = "to_out.0"};
  const GeluOptions gelu{.approximation = "tanh", .up = "net.0.proj", .down = "net.2"};
  const int64_t D = config.width;
  modulation_ =
      register_at(*this, "norm1.linear", std::make_shared<Linear>(D, 6 * D, /*bias=*/true, dtype));
  attention_ = register_attention("attn1", std::make_shared<Attention>(config, axes, dtype, names));
  feed_forward_ =
      register_feed_forward("ff", std::make_shared<GeluFeedForward>(config, axes, dtype, gelu));
}

at::Tensor DitBlock::compute(const at::Tensor& rows, const TokenBatch& batch) {
  const auto [x, c_BD] = conditioning_.split(rows, batch);
  const std::vector<at::Tensor> m = conditioning_.modulations(c_BD, *modulation_, 6, batch);
  const at::Tensor attended =
      attend(*attention_, modulated_norm(x, kEpsilonOfNorms, m[0], m[1]), {}, batch);
  const at::Tensor between = at::addcmul(x, m[2], attended);
  const at::Tensor changed =
      feed_forward(*feed_forward_, modulated_norm(between, epsilon_, m[3], m[4]), {}, batch);
  return Conditioning::join(at::addcmul(between, m[5], changed), c_BD);
}

Dit::Dit(const DitConfig& config, const ModelAxes& axes, const ModelPart& part,
         at::ScalarType dtype)
    : Network(part), conditioning_(axes.tensor) {
  if (part.embeds) {
    embeddings_ = std::make_unique<DitEmbeddings>(*this, config, axes, dtype);
    add_embedding("embeddings", embeddings_->parameters(), /*weights_in_backward=*/true);
  }
  add_blocks<DitBlock>(*this, "transformer_blocks", config.block_config(), axes, dtype);
  if (!part.has_head) return;
  const int64_t D = config.width;
  const auto add = [&](const char* name, int64_t rows) {
    return register_module(name, std::make_shared<Linear>(D, rows, /*bias=*/true, dtype));
  };
  proj_out_1_ = add("proj_out_1", 2 * D);
  proj_out_2_ = add("proj_out_2", config.patch_elements());
  add_norm("proj_out",
           {proj_out_1_->weight, proj_out_1_->bias, proj_out_2_->weight, proj_out_2_->bias});
}

at::Tensor Dit::embed(const at::Tensor& images, const TokenBatch& batch) {
  return embeddings_->forward(images, conditions, batch);
}

at::Tensor Dit::last_norm(const at::Tensor& rows, const TokenBatch& batch) {
  const auto [x, c_BD] = conditioning_.split(rows, batch);
  const std::vector<at::Tensor> m = conditioning_.modulations(c_BD, *proj_out_1_, 2, batch);
  return conditioning_.apply(*proj_out_2_, modulated_norm(x, kEpsilonOfNorms, m[0], m[1]));
}

}  // namespace trireme::model
