// A table of rows looked up by token or position.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace trireme::model {

class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t rows, int64_t width, at::ScalarType dtype);
  // Shapes: tokens_BT [B, T] int64 in [0, V) -> [B, T, D]
  at::Tensor forward(const at::Tensor& tokens_BT);

  at::Tensor weight_VD;
};

}  // namespace trireme::model
