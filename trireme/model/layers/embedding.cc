#include "trireme/model/layers/embedding.h"

#include <ATen/ATen.h>

#include "trireme/model/family/init.h"
#include "trireme/parallel/tensor/split_layers.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {

TokenEmbedding::TokenEmbedding(const ModelConfig& config, const ModelAxes& axes,
                               at::ScalarType dtype)
    : axis_(axes.tensor) {
  const mesh::Range rows = TensorCuts(config, axis_.size()).vocab_of(axis_.rank());
  first_row_ = rows.offset;
  weight_VD = register_parameter("weight", new_parameter({rows.size, config.width}, dtype));
}

at::Tensor TokenEmbedding::forward(const at::Tensor& tokens_BT) {
  return parallel::vocab_embedding(tokens_BT, weight_VD, first_row_, axis_);
}

PositionEmbedding::PositionEmbedding(const ModelConfig& config, const ModelAxes& axes,
                                     at::ScalarType dtype)
    : axis_(axes.tensor) {
  weight_TD =
      register_parameter("weight", new_parameter({config.sequence_length, config.width}, dtype));
}

at::Tensor PositionEmbedding::forward(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor weight = parallel::weight_of_rows(weight_TD, axis_);
  if (!axis_.sequence) return x + weight.index_select(0, batch.positions_T);
  const mesh::Range own = axis_.own_rows(batch.B * batch.T);
  const at::Tensor rows_S = batch.positions_T.repeat({batch.B});
  return x + weight.index_select(0, rows_S.narrow(0, own.offset, own.size));
}

}  // namespace trireme::model
