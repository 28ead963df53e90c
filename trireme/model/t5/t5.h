// T5: an encoder and a decoder of pre-norm blocks without biases, whose attention learns a bias for
// each range of distances between two tokens and divides scores by nothing. One embedding serves
// both halves, and in T5's first version the head, whose inputs are then scaled by 1 / sqrt(D). A
// block of the decoder also reads the encoder's output. model.layers are the encoder's blocks, and
// those of the decoder follow them.
// Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1; gated feed-forward and separate head:
//         Shazeer 2020, arXiv:2002.05202
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "trireme/model/family/family.h"
#include "trireme/model/family/network.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/embedding.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// The names of what its parts pass on besides the hidden state and the weight of a tied head: the
// biases of either half, the encoder's output, and an embedding that is not the head.
inline constexpr std::string_view kEncoderBias = "encoder bias";
inline constexpr std::string_view kDecoderBias = "decoder bias";
inline constexpr std::string_view kMemory = "memory";
inline constexpr std::string_view kEmbedding = "embedding";

// The bucket of each distance -(T - 1) .. T - 1 from a query to a key: half of the buckets are for
// single distances, the others for ranges that grow up to `relative_distance`. In both directions,
// half of all buckets are for keys behind the query; otherwise those share bucket 0.
// Shapes: -> [2 T - 1] int64
at::Tensor distance_buckets(int64_t T, const EncoderDecoderConfig& config, bool both_directions);

// The biases of a half's attention, which all of its blocks share.
class DistanceBias : public torch::nn::Module {
 public:
  DistanceBias(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
               bool both_directions);
  // Shapes: -> [n, 2 T - 1] in fp32 at least, see AttentionReach::distance_bias_NR
  at::Tensor forward(int64_t T) const;

  at::Tensor weight_RN;  // [relative_buckets, n]: n of N heads

 private:
  EncoderDecoderConfig config_;
  bool both_directions_;
};

// Either form of T5's feed-forward.
class T5FeedForward : public torch::nn::Module {
 public:
  T5FeedForward(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Shapes: x, residual [B, T, D], or their rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const TokenBatch& batch);
  void set_dropout(double probability, const std::string& place);

 private:
  std::shared_ptr<GeluFeedForward> plain_;  // one of them
  std::shared_ptr<FeedForward> gated_;
};

// x + attention(norm(x)), in a decoder then x + attention(norm(x), memory), then x + mlp(norm(x)).
class T5Block : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  T5Block(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

 private:
  at::Tensor compute(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<Attention> attention_;
  std::shared_ptr<RmsNorm> attention_norm_;
  std::shared_ptr<Attention> cross_attention_;  // null in an encoder
  std::shared_ptr<RmsNorm> cross_norm_;
  std::shared_ptr<T5FeedForward> feed_forward_;
  std::shared_ptr<RmsNorm> norm_;
};

class T5 : public Network {
 public:
  T5(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part, at::ScalarType dtype);
  NetworkOutput run(const NetworkInput& in) override;

 private:
  // One half as far as the part has it.
  struct Half {
    std::shared_ptr<DistanceBias> bias{};  // null: the part does not have the half's first block
    size_t bias_unit = 0;
    std::shared_ptr<RmsNorm> norm{};  // null: the part does not have the half's last block
    size_t norm_unit = 0;
    mesh::Range blocks{};  // of the part
    Dropout dropout{};     // of the embedding
  };
  Half make_half(const char* name, const mesh::Range& all, const ModelConfig& config,
                 const ModelAxes& axes, at::ScalarType dtype);

  at::Tensor embed(const at::Tensor& tokens_BT, const TokenBatch& batch) override;
  at::Tensor last_norm(const at::Tensor& x, const TokenBatch& batch) override;
  // The decoder's embedding, with the weight of another part if this one does not embed.
  at::Tensor embed_targets(const NetworkInput& in);
  // The half's biases: its own, or those of the part that has its first block.
  at::Tensor bias_of(const Half& half, std::string_view name, const TokenBatch& batch,
                     const NetworkInput& in);
  at::Tensor run_blocks(const Half& half, at::Tensor x, const TokenBatch& batch);
  // In generation: has the encoder read the prompts of the texts that begin.
  void read_prompts(const CachedTokens& cached, at::Device device);

  ModelConfig config_;
  parallel::TensorAxis axis_;
  int64_t first_row_;                       // of the vocabulary on this rank
  std::shared_ptr<TokenEmbedding> shared_;  // null: the part does not embed
  Half encoder_;
  Half decoder_;
};

// The plan splits matrices and biases by heads, feed-forward rows and vocabulary. Norms are whole.
const Family& t5_family();

}  // namespace trireme::model
