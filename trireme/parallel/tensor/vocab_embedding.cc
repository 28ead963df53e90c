#include "trireme/parallel/tensor/vocab_embedding.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct VocabCall : torch::CustomClassHolder {
  TensorAxis axis;
  at::Tensor positions;  // [n] int64: rows of the result that this rank fills
  at::Tensor rows;       // [n] int64: rows of the rank's weight
  int64_t num_rows = 0;  // S
};

class VocabEmbeddingFunction : public torch::autograd::Function<VocabEmbeddingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight_vD,
                            const c10::intrusive_ptr<VocabCall>& call) {
    const at::Tensor y_SD =
        empty_on(call->axis, {call->num_rows, weight_vD.size(1)}, weight_vD.options());
    y_SD.zero_();
    y_SD.index_copy_(0, call->positions, weight_vD.index_select(0, call->rows));
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->saved_data["weight_rows"] = weight_vD.size(0);
    // All but one of a row's terms are zero, so the sum is exact.
    return sum_rows(y_SD, call->axis).wait();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<VocabCall>(ctx->saved_data["call"].toCapsule());
    const at::Tensor grad_SD = gather_rows(grads[0], call->num_rows, call->axis).wait();
    return {at::embedding_dense_backward(grad_SD.index_select(0, call->positions), call->rows,
                                         ctx->saved_data["weight_rows"].toInt(), /*padding_idx=*/-1,
                                         false),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor vocab_embedding(const at::Tensor& tokens_BT, const at::Tensor& weight_vD,
                           int64_t first_row, const TensorAxis& axis) {
  if (axis.size() == 1) {
    const at::Tensor y_BTD = at::embedding(weight_vD, tokens_BT);
    return axis.sequence ? view_rows(y_BTD) : y_BTD;
  }
  auto call = c10::make_intrusive<VocabCall>();
  call->axis = axis;
  const at::Tensor rows_S = tokens_BT.reshape({-1}) - first_row;
  call->num_rows = rows_S.numel();
  call->positions = rows_S.ge(0).logical_and(rows_S.lt(weight_vD.size(0))).nonzero().squeeze(1);
  call->rows = rows_S.index_select(0, call->positions);
  at::Tensor y = VocabEmbeddingFunction::apply(weight_vD, call);
  if (axis.sequence) return y;
  std::vector<int64_t> shape = tokens_BT.sizes().vec();
  shape.push_back(weight_vD.size(1));
  return y.view(shape);
}

}  // namespace trireme::parallel
