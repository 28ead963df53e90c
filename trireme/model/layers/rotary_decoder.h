// What decoders with rotary positions have around their blocks, under transformers' names: the
// embedding, the last norm, and a head that is the embedding if model.tied_embedding is true.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/network.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/embedding.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/rotary.h"

namespace trireme::model {

struct DecoderOptions {
  double embedding_scale = 1;  // factor of what the embedding looks up
  double logits_divisor = 1;   // the last norm's output is divided by it, and so are the logits
  double norm_offset = 0;      // see RmsNorm
};

class RotaryDecoder : public Network {
 public:
  // Adds the rotary angles of the positions.
  void complete(TokenBatch& batch) const override { rotary_.complete(batch); }

 protected:
  RotaryDecoder(const ModelConfig& config, const ModelPart& part, at::ScalarType dtype,
                const DecoderOptions& options);
  // Registers the part's layers. A constructor calls it once.
  // add_inserted: registers what insert() runs in the model, if the part embeds
  template <typename BlockType>
  void add_layers(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
                  at::ScalarType dtype,
                  const std::function<void(torch::nn::Module& model)>& add_inserted = {}) {
    const auto model = register_module("model", std::make_shared<torch::nn::Module>());
    if (part.embeds) add_tokens(*model, config, axes, dtype);
    if (part.embeds && add_inserted) add_inserted(*model);
    add_blocks<BlockType>(*model, "layers", config, axes, dtype);
    if (part.has_head) add_end(*model, config, axes, dtype);
  }

 private:
  void add_tokens(torch::nn::Module& model, const ModelConfig& config, const ModelAxes& axes,
                  at::ScalarType dtype);
  void add_end(torch::nn::Module& model, const ModelConfig& config, const ModelAxes& axes,
               at::ScalarType dtype);
  at::Tensor embed(const at::Tensor& tokens_BT, const TokenBatch& batch) override;
  at::Tensor last_norm(const at::Tensor& x, const TokenBatch& batch) override;

  DecoderOptions options_;
  mutable RotaryAngles rotary_;                   // on the device of the last batch
  std::shared_ptr<TokenEmbedding> embed_tokens_;  // null: the part does not embed
  Dropout dropout_;                               // of the embedding
  std::shared_ptr<RmsNorm> norm_;                 // null: the part has no head
};

}  // namespace trireme::model
