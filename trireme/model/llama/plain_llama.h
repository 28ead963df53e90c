// A dense Llama of torch's modules and operators alone, with the names and sizes of llama.h. It is
// what a user would write, has no axis, and can be traced (spmd/graph).
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/model_config.h"

namespace trireme::model {

// Throws: ConfigError with the key when the config asks for what it does not have: another family,
//         experts, latent attention, windows, dropout, images, adapters, classes
void check_plain_llama(const ModelConfig& config);

class PlainLlama : public torch::nn::Module {
 public:
  PlainLlama(const ModelConfig& config, at::ScalarType dtype);
  ~PlainLlama() override;

  // Shapes: tokens_BT [B, T] int64 -> logits [B, T, V]
  at::Tensor forward(const at::Tensor& tokens_BT);
  // The mean of the cross-entropies of all tokens, in fp32 or the weights' wider dtype.
  at::Tensor loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT);

 private:
  struct Layers;
  std::unique_ptr<Layers> layers_;
};

}  // namespace trireme::model
