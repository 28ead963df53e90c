#include "trireme/model/layers/embedding.h"

#include <tuple>

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

namespace {

// The position of each of this rank's tokens in its document.
// Shapes: -> [B, T] int64
at::Tensor document_positions(const TokenBatch& batch) {
  const at::Tensor& documents_BT = batch.documents_BT;  // of the whole sequences
  const at::Tensor index_T = at::arange(documents_BT.size(1), documents_BT.options());
  const at::Tensor continues_BT = at::zeros_like(documents_BT, at::kBool);
  continues_BT.slice(1, 1).copy_(documents_BT.slice(1, 1).eq(documents_BT.slice(1, 0, -1)));
  const at::Tensor begins_BT = index_T.expand_as(documents_BT).masked_fill(continues_BT, 0);
  const at::Tensor whole_BT = index_T - std::get<0>(begins_BT.cummax(1));
  return batch.context ? batch.context->local(whole_BT, 1) : whole_BT;
}

}  // namespace

at::Tensor PositionEmbedding::forward(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor weight = parallel::weight_of_rows(weight_TD, axis_);
  const bool is_one_document = !batch.documents_BT.defined();
  if (!axis_.sequence && is_one_document) return x + weight.index_select(0, batch.positions_T);
  const at::Tensor rows_S =
      is_one_document ? batch.positions_T.repeat({batch.B}) : document_positions(batch).flatten();
  if (!axis_.sequence) return x + weight.index_select(0, rows_S).view(x.sizes());
  const mesh::Range own = axis_.own_rows(batch.B * batch.T);
  return x + weight.index_select(0, rows_S.narrow(0, own.offset, own.size));
}

}  // namespace trireme::model
