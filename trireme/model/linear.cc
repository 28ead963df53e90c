#include "trireme/model/linear.h"

#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor view_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// x W^T in a tensor of its own: autograd lets nobody change a view that is one of several outputs.
at::Tensor product(const at::Tensor& x, const at::Tensor& w) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = w.size(0);
  at::Tensor y = at::empty(shape, x.options());
  at::Tensor y_rows = view_rows(y);
  at::mm_out(y_rows, view_rows(x), w.t());
  return y;
}

class ProjectFunction : public torch::autograd::Function<ProjectFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w0,
                               const at::Tensor& w1, const std::optional<at::Tensor>& w2) {
    variable_list outputs = {product(x, w0), product(x, w1)};
    if (w2) outputs.push_back(product(x, *w2));
    ctx->save_for_backward({x, w0, w1, w2.value_or(at::Tensor())});
    ctx->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor rows = view_rows(x);
    variable_list result(4);
    at::Tensor grad_rows;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      const at::Tensor grad = view_rows(grads[i]);
      const at::Tensor& w = saved[i + 1];
      if (ctx->needs_input_grad(0)) {
        if (grad_rows.defined()) {
          grad_rows.addmm_(grad, w);
        } else {
          grad_rows = at::mm(grad, w);
        }
      }
      if (ctx->needs_input_grad(i + 1)) result[i + 1] = at::mm(grad.t(), rows);
    }
    if (grad_rows.defined()) result[0] = grad_rows.view(x.sizes());
    return result;
  }
};

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias, at::ScalarType dtype) {
  weight = register_parameter("weight", at::zeros({out, in}, dtype));
  if (with_bias) bias = register_parameter("bias", at::zeros({out}, dtype));
}

at::Tensor Linear::forward(const at::Tensor& x) { return at::linear(x, weight, bias); }

at::Tensor Linear::forward_add(const at::Tensor& x, const at::Tensor& residual) {
  return at::addmm(view_rows(residual), view_rows(x), weight.t()).view(residual.sizes());
}

std::array<at::Tensor, 3> project(const at::Tensor& x, const at::Tensor& w0, const at::Tensor& w1,
                                  const at::Tensor& w2) {
  const variable_list outputs =
      ProjectFunction::apply(x, w0, w1, w2.defined() ? std::optional(w2) : std::nullopt);
  return {outputs[0], outputs[1], outputs.size() > 2 ? outputs[2] : at::Tensor()};
}

}  // namespace trireme::model
