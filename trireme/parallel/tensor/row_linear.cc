#include "trireme/parallel/tensor/row_linear.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RowCall : torch::CustomClassHolder {
  TensorAxis axis;
  bool has_bias = false;
  bool has_residual = false;
  std::vector<int64_t> shape;  // of the result
};

// Computes rows of this rank's part of the sum, into y. Residual and bias are added only to the
// rank's own rows. Each row thus gets them once, inside a matrix product, and the ranks share the
// work.
class PartialProduct {
 public:
  PartialProduct(const at::Tensor& x_Sf, const at::Tensor& w_Df, at::Tensor bias,
                 at::Tensor residual, const TensorAxis& axis, const at::Tensor& y_SD)
      : x_Sf_(x_Sf),
        w_fD_(w_Df.t()),
        bias_(std::move(bias)),
        residual_(std::move(residual)),
        own_(axis.own_rows(x_Sf.size(0))),
        first_residual_row_(axis.sequence ? own_.offset : 0),
        y_SD_(y_SD) {}

  // rows: those of one rank.
  void operator()(mesh::Range rows) const {
    if (rows.size == 0) return;
    at::Tensor y = y_SD_.narrow(0, rows.offset, rows.size);
    const at::Tensor x = x_Sf_.narrow(0, rows.offset, rows.size);
    if (rows != own_ || (!residual_.defined() && !bias_.defined())) {
      at::mm_out(y, x, w_fD_);
    } else if (!residual_.defined()) {
      at::addmm_out(y, bias_, x, w_fD_);
    } else {
      const at::Tensor residual =
          view_rows(residual_).narrow(0, rows.offset - first_residual_row_, rows.size);
      at::addmm_out(y, residual, x, w_fD_);
      if (bias_.defined()) y.add_(bias_);
    }
  }

 private:
  at::Tensor x_Sf_, w_fD_, bias_, residual_;
  mesh::Range own_;
  int64_t first_residual_row_;
  at::Tensor y_SD_;
};

// tensors: x, weight, then bias and residual if present.
class RowLinearFunction : public torch::autograd::Function<RowLinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<RowCall>& call,
                            at::TensorList tensors) {
    const at::Tensor bias = call->has_bias ? tensors[2] : at::Tensor();
    const at::Tensor residual = call->has_residual ? tensors[call->has_bias ? 3 : 2] : at::Tensor();
    const at::Tensor x_Sf = view_rows(tensors[0]);
    const at::Tensor y_SD =
        empty_on(call->axis, {x_Sf.size(0), tensors[1].size(0)}, x_Sf.options());
    const PartialProduct product(x_Sf, tensors[1], bias, residual, call->axis, y_SD);
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward({tensors[0], tensors[1]});
    return multiply_and_sum_rows(y_SD, call->axis, product).view(call->shape);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<RowCall>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor x_Sf = view_rows(x);
    const TensorAxis& axis = call->axis;
    MovingRows gathered = gather_rows(grads[0], x_Sf.size(0), axis, axis.overlaps());
    variable_list result(3);  // of the call, which needs_input_grad() does not count, x, weight
    if (ctx->needs_input_grad(0)) {
      const at::Tensor grad_x_Sf = at::empty(x_Sf.sizes(), x_Sf.options());
      multiply_gathered(axis, grads[0], gathered, [&](mesh::Range rows, const at::Tensor& grad) {
        at::Tensor part = grad_x_Sf.narrow(0, rows.offset, rows.size);
        at::mm_out(part, grad, saved[1]);
      });
      result[1] = grad_x_Sf.view(x.sizes());
    }
    const at::Tensor grad_SD = gathered.wait();
    if (ctx->needs_input_grad(1)) {
      result[2] = weight_gradient(axis, saved[1], [=] { return at::mm(grad_SD.t(), x_Sf); });
    }
    if (call->has_bias) result.push_back(grad_SD.sum(0));
    if (call->has_residual) result.push_back(grads[0]);
    return result;
  }
};

}  // namespace

at::Tensor row_linear(const at::Tensor& x_f, const LinearWeight& layer, const at::Tensor& residual,
                      const TensorAxis& axis) {
  TRIREME_ASSERT(x_f.size(-1) == layer.weight.size(1), "row_linear of ", x_f.sizes(), " by ",
                 layer.weight.sizes());
  auto call = c10::make_intrusive<RowCall>();
  call->axis = axis;
  call->has_bias = layer.bias.defined();
  call->has_residual = residual.defined();
  if (residual.defined()) {
    call->shape = residual.sizes().vec();
  } else if (axis.sequence) {
    call->shape = {axis.own_rows(x_f.numel() / x_f.size(-1)).size, layer.weight.size(0)};
  } else {
    call->shape = x_f.sizes().vec();
    call->shape.back() = layer.weight.size(0);
  }
  std::vector<at::Tensor> tensors{x_f, layer.weight};
  if (call->has_bias) tensors.push_back(layer.bias);
  if (call->has_residual) tensors.push_back(residual);
  return RowLinearFunction::apply(call, at::TensorList(tensors));
}

}  // namespace trireme::parallel
