#include "trireme/parallel/tensor/column_linear.h"

#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ColumnCall : torch::CustomClassHolder {
  TensorAxis axis;
  std::vector<int64_t> lead;
  std::vector<bool> has_bias;  // one per layer
  int64_t num_rows = 1;
};

// Rows of y = x W^T + b.
void multiply(at::Tensor y_Sf, mesh::Range rows, const at::Tensor& x, const at::Tensor& w,
              const at::Tensor& bias) {
  at::Tensor y = y_Sf.narrow(0, rows.offset, rows.size);
  if (bias.defined()) {
    at::addmm_out(y, bias, x, w.t());
  } else {
    at::mm_out(y, x, w.t());
  }
}

// tensors: x, then each layer's weight and, if it has one, its bias.
class ColumnLinearFunction : public torch::autograd::Function<ColumnLinearFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const c10::intrusive_ptr<ColumnCall>& call,
                               at::TensorList tensors) {
    const TensorAxis& axis = call->axis;
    std::vector<LinearWeight> layers;
    for (size_t at = 1; at < tensors.size();) {
      const bool has_bias = call->has_bias[layers.size()];
      layers.push_back({tensors[at], has_bias ? tensors[at + 1] : at::Tensor()});
      at += has_bias ? 2 : 1;
    }
    // Separate tensors, because autograd forbids changing a view that is one of several outputs.
    variable_list outputs, saved{tensors[0]}, rows_of;
    for (const LinearWeight& layer : layers) {
      std::vector<int64_t> shape = call->lead;
      shape.push_back(layer.weight.size(0));
      outputs.push_back(at::empty(shape, tensors[0].options()));
      rows_of.push_back(outputs.back().view({call->num_rows, layer.weight.size(0)}));
      saved.push_back(layer.weight);
    }
    MovingRows gathered = gather_rows(tensors[0], call->num_rows, axis, axis.overlaps());
    multiply_gathered(axis, tensors[0], gathered, [&](mesh::Range rows, const at::Tensor& x) {
      for (size_t i = 0; i < layers.size(); ++i)
        multiply(rows_of[i], rows, x, layers[i].weight, layers[i].bias);
    });
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward(std::move(saved));
    ctx->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<ColumnCall>(ctx->saved_data["call"].toCapsule());
    const TensorAxis& axis = call->axis;
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    MovingRows gathered = gather_rows(x, call->num_rows, axis, axis.overlaps());
    for (at::Tensor& grad : grads) {
      if (grad.defined()) grad = view_rows(grad);
    }
    std::optional<MovingRows> grad_x;
    if (ctx->needs_input_grad(0)) {
      grad_x = sum_rows(input_gradient(*call, saved, grads), axis, axis.overlaps());
    }
    const at::Tensor x_SD = gathered.wait();
    variable_list result(2);  // of the call, which needs_input_grad() does not count, and x
    for (size_t layer = 0; layer < grads.size(); ++layer) {
      const at::Tensor& grad = grads[layer];
      const bool wanted = grad.defined() && ctx->needs_input_grad(result.size() - 1);
      result.push_back(!wanted ? at::Tensor() : weight_gradient(axis, saved[layer + 1], [=] {
        return at::mm(grad.t(), x_SD);
      }));
      if (!call->has_bias[layer]) continue;
      result.push_back(grad.defined() ? grad.sum(0) : at::Tensor());
    }
    if (grad_x) result[1] = grad_x->wait().view(x.sizes());
    return result;
  }

 private:
  // Over this rank's outputs: [S, D].
  static at::Tensor input_gradient(const ColumnCall& call, const variable_list& saved,
                                   const variable_list& grads) {
    at::Tensor grad_SD =
        empty_on(call.axis, {call.num_rows, saved[0].size(-1)}, saved[0].options());
    bool is_first = true;
    for (size_t layer = 0; layer < grads.size(); ++layer) {
      if (!grads[layer].defined()) continue;
      if (is_first) {
        at::mm_out(grad_SD, grads[layer], saved[layer + 1]);
      } else {
        grad_SD.addmm_(grads[layer], saved[layer + 1]);
      }
      is_first = false;
    }
    return is_first ? grad_SD.zero_() : grad_SD;
  }
};

}  // namespace

std::vector<at::Tensor> column_linear(const at::Tensor& x, const std::vector<LinearWeight>& layers,
                                      at::IntArrayRef lead, const TensorAxis& axis) {
  auto call = c10::make_intrusive<ColumnCall>();
  call->axis = axis;
  call->lead = lead.vec();
  for (const int64_t length : lead) call->num_rows *= length;
  std::vector<at::Tensor> tensors{x};
  for (const LinearWeight& layer : layers) {
    tensors.push_back(layer.weight);
    call->has_bias.push_back(layer.bias.defined());
    if (layer.bias.defined()) tensors.push_back(layer.bias);
  }
  return ColumnLinearFunction::apply(call, at::TensorList(tensors));
}

}  // namespace trireme::parallel
