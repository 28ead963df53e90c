// Embedding tables: one looked up by token, one by position.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/plan.h"

namespace trireme::model {

// Each rank of the tensor axis holds some rows of the vocabulary.
class TokenEmbedding : public torch::nn::Module {
 public:
  TokenEmbedding(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Shapes: tokens_BT [B, T] int64 in [0, V) -> [B, T, D], or its rows as the tensor axis holds
  //         them
  at::Tensor forward(const at::Tensor& tokens_BT);

  at::Tensor weight_VD;  // [v, D]

 private:
  parallel::TensorAxis axis_;
  int64_t first_row_;
};

// Every rank holds the whole table.
class PositionEmbedding : public torch::nn::Module {
 public:
  PositionEmbedding(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Adds to each row the embedding of its position: in its document when the batch has those,
  // otherwise in its sequence.
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x, const TokenBatch& batch);

  at::Tensor weight_TD;  // [sequence_length, D]

 private:
  parallel::TensorAxis axis_;
};

}  // namespace trireme::model
