#include "trireme/model/t5/t5.h"

#include <cmath>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/cache/key_cache.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/token_probe.h"
#include "trireme/parallel/context/context_attention.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::model {

at::Tensor distance_buckets(int64_t T, const EncoderDecoderConfig& config, bool both_directions) {
  const at::Tensor distance_R = at::arange(1 - T, T, at::kLong);
  int64_t buckets = config.relative_buckets;
  at::Tensor bucket_R = at::zeros_like(distance_R);
  at::Tensor size_R = distance_R.clamp_max(0).neg();
  if (both_directions) {
    buckets /= 2;
    bucket_R = distance_R.gt(0).to(at::kLong).mul_(buckets);
    size_R = distance_R.abs();
  }
  const int64_t single = buckets / 2;
  // In fp32, whose rounding decides the bucket of a distance at a range's edge as in T5's code.
  const double ranges =
      std::log(static_cast<double>(config.relative_distance) / static_cast<double>(single));
  const at::Tensor grown_R =
      (at::log(size_R.to(at::kFloat) / single) / ranges * (buckets - single)).to(at::kLong);
  const at::Tensor far_R = (grown_R + single).clamp_max(buckets - 1);
  return bucket_R + at::where(size_R.lt(single), size_R, far_R);
}

DistanceBias::DistanceBias(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                           bool both_directions)
    : config_(config.seq2seq), both_directions_(both_directions) {
  const TensorCuts cuts(config, axes.tensor.size());
  weight_RN = register_parameter(
      "weight",
      new_parameter({config_.relative_buckets, cuts.heads_of(axes.tensor.rank()).size}, dtype));
}

at::Tensor DistanceBias::forward(int64_t T) const {
  const at::Tensor bucket_R = distance_buckets(T, config_, both_directions_).to(weight_RN.device());
  // Its gradient is a sum over blocks, which bf16 would round.
  const at::ScalarType dtype = weight_RN.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return weight_RN.to(dtype).index_select(0, bucket_R).t();
}

T5FeedForward::T5FeedForward(const ModelConfig& config, const ModelAxes& axes,
                             at::ScalarType dtype) {
  const int64_t rows = TensorCuts(config, axes.tensor.size()).ffn_of(axes.tensor.rank()).size;
  if (config.seq2seq.feed_forward == FeedForwardForm::kRelu) {
    plain_ = std::make_shared<GeluFeedForward>(
        config, axes, dtype, GeluOptions{.up = "wi", .down = "wo", .bias = false, .relu = true});
  } else {
    gated_ = std::make_shared<FeedForward>(config.width, rows, axes, dtype, Gate::kGeluTanh,
                                           GateNames{.gate = "wi_0", .up = "wi_1", .down = "wo"});
  }
  const torch::nn::Module& parts = plain_ ? static_cast<torch::nn::Module&>(*plain_) : *gated_;
  for (const auto& part : parts.named_children()) register_module(part.key(), part.value());
}

at::Tensor T5FeedForward::forward(const at::Tensor& x, const at::Tensor& residual,
                                  const TokenBatch& batch) {
  return plain_ ? plain_->forward(x, residual, batch) : gated_->forward(x, residual, batch);
}

void T5FeedForward::set_dropout(double probability, const std::string& place) {
  plain_ ? plain_->set_dropout(probability, place) : gated_->set_dropout(probability, place);
}

T5Block::T5Block(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                 int64_t layer)
    : TransformerBlock(config, layer) {
  AttentionOptions options{.query = "q", .key = "k", .value = "v", .output = "o", .score_scale = 1};
  const auto norm = [&](const char* path) {
    return register_at(*this, path, std::make_shared<RmsNorm>(config, axes, dtype));
  };
  attention_ = register_attention("layer.0.SelfAttention",
                                  std::make_shared<Attention>(config, axes, dtype, options));
  attention_norm_ = norm("layer.0.layer_norm");
  const bool is_decoder = layer >= config.layers;
  if (is_decoder) {
    options.across = true;
    cross_attention_ = register_attention("layer.1.EncDecAttention",
                                          std::make_shared<Attention>(config, axes, dtype, options),
                                          "cross_attention");
    cross_norm_ = norm("layer.1.layer_norm");
  }
  feed_forward_ =
      register_feed_forward(is_decoder ? "layer.2.DenseReluDense" : "layer.1.DenseReluDense",
                            std::make_shared<T5FeedForward>(config, axes, dtype));
  norm_ = norm(is_decoder ? "layer.2.layer_norm" : "layer.1.layer_norm");
}

at::Tensor T5Block::compute(const at::Tensor& x, const TokenBatch& batch) {
  const auto [x0, normed0] = attention_norm_->branch(x);
  at::Tensor sum = attend(*attention_, normed0, x0, batch);
  if (cross_attention_) {
    const auto [x1, normed1] = cross_norm_->branch(sum);
    sum = attend(*cross_attention_, normed1, x1, batch);
  }
  const auto [x2, normed2] = norm_->branch(sum);
  return feed_forward(*feed_forward_, normed2, x2, batch);
}

namespace {

// What the decoder's first part needs of an embedding that another part has.
std::string name_of_embedding(const ModelConfig& config) {
  return std::string(config.tied_embedding ? kHeadWeight : kEmbedding);
}

int64_t whole_length(const TokenBatch& batch) {
  if (batch.cached) return batch.cached->longest();
  return batch.context ? batch.context->split.length() : batch.T;
}

}  // namespace

T5::T5(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
       at::ScalarType dtype)
    : Network(part),
      config_(config),
      axis_(axes.tensor),
      first_row_(TensorCuts(config, axis_.size()).vocab_of(axis_.rank()).offset) {
  if (part.embeds) {
    shared_ = register_module("shared", std::make_shared<TokenEmbedding>(config, axes, dtype));
    add_embedding("shared", {shared_->weight_VD});
    if (config.tied_embedding) tie_head(shared_->weight_VD);
  }
  encoder_ = make_half("encoder", {0, config.layers}, config, axes, dtype);
  decoder_ = make_half("decoder", {config.layers, config.decoder_layers()}, config, axes, dtype);
  encoder_.dropout = Dropout(config.dropout, "embedding");
  decoder_.dropout = Dropout(config.dropout, "decoder.embedding");
  if (!part.has_head || config.tied_embedding) return;
  const int64_t v = TensorCuts(config, axis_.size()).vocab_of(axis_.rank()).size;
  const auto head = register_module("lm_head", std::make_shared<Linear>(config.width, v,
                                                                        /*bias=*/false, dtype));
  add_head("head", head->weight);
}

T5::Half T5::make_half(const char* name, const mesh::Range& all, const ModelConfig& config,
                       const ModelAxes& axes, at::ScalarType dtype) {
  const int64_t first = std::max(part().first_layer, all.offset);
  const int64_t end = std::min(part().end(), all.offset + all.size);
  Half half;
  if (first >= end) return half;
  half.blocks = {first - part().first_layer, end - first};
  const auto module = register_module(name, std::make_shared<torch::nn::Module>());
  if (first == all.offset) {
    half.bias = module->register_module(
        "relative_attention_bias",
        std::make_shared<DistanceBias>(config, axes, dtype, /*both_directions=*/all.offset == 0));
    half.bias_unit = add_unit(concat(name, ".relative_attention_bias"), {half.bias->weight_RN},
                              /*weights_in_backward=*/false);
  }
  add_blocks_of<T5Block>(*module, "block", all, config, axes, dtype);
  if (end == all.offset + all.size) {
    half.norm =
        module->register_module("final_layer_norm", std::make_shared<RmsNorm>(config, axes, dtype));
    half.norm_unit = add_unit(concat(name, ".final_layer_norm"), {half.norm->weight_D},
                              /*weights_in_backward=*/true);
  }
  return half;
}

at::Tensor T5::embed(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  return encoder_.dropout.forward(shared_->forward(tokens_BT), batch);
}

at::Tensor T5::embed_targets(const NetworkInput& in) {
  const auto drop = [&](const at::Tensor& x) { return decoder_.dropout.forward(x, in.decoder); };
  if (shared_ == nullptr) {
    const at::Tensor weight_vD = find_tensor(in.carried, name_of_embedding(config_));
    return drop(parallel::vocab_embedding(in.decoder_tokens, weight_vD, first_row_, axis_));
  }
  return run_unit(0, in.decoder_tokens,
                  [&](const at::Tensor& tokens) { return drop(shared_->forward(tokens)); });
}

at::Tensor T5::bias_of(const Half& half, std::string_view name, const TokenBatch& batch,
                       const NetworkInput& in) {
  if (half.bias == nullptr) return find_tensor(in.carried, name);
  const at::Tensor& any = part().embeds && in.x.defined() ? in.x : in.decoder_tokens;
  return run_unit(half.bias_unit, any, [&](const at::Tensor& /*tokens*/) {
    return half.bias->forward(whole_length(batch));
  });
}

at::Tensor T5::run_blocks(const Half& half, at::Tensor x, const TokenBatch& batch) {
  for (int64_t i = 0; i < half.blocks.size; ++i) {
    x = run_block(static_cast<size_t>(half.blocks.offset + i), x, batch);
  }
  return x;
}

at::Tensor T5::last_norm(const at::Tensor& x, const TokenBatch& /*batch*/) {
  const at::Tensor normed = decoder_.norm->forward(x);
  return config_.tied_embedding ? normed / std::sqrt(static_cast<double>(config_.width)) : normed;
}

void T5::read_prompts(const CachedTokens& cached, at::Device device) {
  for (size_t i = 0; i < cached.prompts.size(); ++i) {
    if (!cached.prompts[i].defined()) continue;
    const at::Tensor tokens_1S = cached.prompts[i].to(device);
    const int64_t S = tokens_1S.size(1);
    const NetworkOutput out = run(
        {.x = tokens_1S,
         .batch = {.T = S, .positions_T = at::arange(S, tokens_1S.options()), .causal = false}});
    cached.cache->set_memory(cached.runs[i].text, find_tensor(out.carried, kMemory));
  }
}

NetworkOutput T5::run(const NetworkInput& in) {
  if (in.decoder.cached) read_prompts(*in.decoder.cached, in.decoder_tokens.device());
  NetworkOutput out;
  at::Tensor memory, encoder_bias, decoder_bias;
  // In generation a forward has tokens of one half.
  const bool runs_decoder = decoder_.blocks.size > 0 && in.decoder_tokens.defined();
  const bool runs_encoder = encoder_.blocks.size > 0 && !in.decoder.cached;
  if (runs_encoder) {
    at::Tensor x = in.x;
    if (part().embeds) {
      x = run_unit(0, in.x, [&](const at::Tensor& tokens) { return embed(tokens, in.batch); });
      x = probe_tokens("embedding", x, in.batch);
    }
    TokenBatch batch = in.batch;
    batch.distance_bias_NR = encoder_bias = bias_of(encoder_, kEncoderBias, batch, in);
    out.x = run_blocks(encoder_, x, batch);
    if (encoder_.norm) {
      memory = run_unit(encoder_.norm_unit, out.x,
                        [&](const at::Tensor& h) { return encoder_.norm->forward(h); });
      memory = probe_tokens("memory", memory, in.batch);
      out.x = at::Tensor();
    }
  } else if (!in.decoder.cached) {
    memory = find_tensor(in.carried, kMemory);
  }
  if (runs_decoder) {
    const bool begins = decoder_.bias != nullptr;
    const at::Tensor y =
        begins ? probe_tokens("decoder_embedding", embed_targets(in), in.decoder) : in.x;
    TokenBatch batch = in.decoder;
    batch.memory = memory;
    batch.memory_T = in.batch.T;
    batch.memory_split = std::make_shared<const parallel::SequenceSplit>(
        in.batch.context
            ? in.batch.context->split
            : parallel::SequenceSplit(in.batch.T, 1, parallel::SequenceOrder::kContiguous));
    batch.distance_bias_NR = decoder_bias = bias_of(decoder_, kDecoderBias, batch, in);
    out.x = run_blocks(decoder_, y, batch);
    if (decoder_.norm) {
      out.x = run_unit(decoder_.norm_unit, out.x,
                       [&](const at::Tensor& h) { return last_norm(h, batch); });
      out.x = probe_tokens("norm", out.x, batch);
    }
  }
  // A new node of the graph each, behind the blocks': the gradients of later parts come first in
  // its sum, as those of later blocks do.
  const auto carry = [&](std::string_view name, const at::Tensor& tensor) {
    if (tensor.defined()) out.carried.emplace_back(name, tensor.view_as(tensor));
  };
  carry(kEncoderBias, encoder_bias);
  carry(kMemory, memory);
  carry(kDecoderBias, decoder_bias);
  const bool others_embed_targets = part().embeds && part().end() <= config_.layers;
  if (others_embed_targets && !config_.tied_embedding) {
    out.carried.emplace_back(kEmbedding, run_unit(0, in.x, [this](const at::Tensor& /*tokens*/) {
                               return shared_->weight_VD.clone();
                             }));
  }
  return out;
}

}  // namespace trireme::model
