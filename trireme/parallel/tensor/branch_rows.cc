#include "trireme/parallel/tensor/branch_rows.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BranchCall : torch::CustomClassHolder {
  TensorAxis axis;
  int64_t num_rows = 0;
  std::vector<int64_t> held;  // the shape that the layers hold
};

c10::intrusive_ptr<BranchCall> call_of(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<BranchCall>(ctx->saved_data["call"].toCapsule());
}

at::Tensor gather(const at::Tensor& held, const BranchCall& call) {
  return gather_rows(held, call.num_rows, call.axis).wait();
}

// Leaves y as it is.
at::Tensor sum(const at::Tensor& y_SD, const BranchCall& call) {
  const at::Tensor copy = empty_on(call.axis, y_SD.sizes(), y_SD.options());
  copy.copy_(y_SD);
  return sum_rows(copy, call.axis).wait().view(call.held);
}

class OpenBranchFunction : public torch::autograd::Function<OpenBranchFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<BranchCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::Tensor x_SD = gather(x, *call);
    return x_SD.is_alias_of(x) ? x_SD.view_as(x_SD) : x_SD;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {sum(grads[0], *call_of(ctx)), at::Tensor()};
  }
};

class CloseBranchFunction : public torch::autograd::Function<CloseBranchFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y_SD,
                            const c10::intrusive_ptr<BranchCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return sum(y_SD, *call);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {gather(grads[0], *call_of(ctx)), at::Tensor()};
  }
};

c10::intrusive_ptr<BranchCall> make_call(const TensorAxis& axis, int64_t num_rows,
                                         at::IntArrayRef held) {
  auto call = c10::make_intrusive<BranchCall>();
  call->axis = axis;
  call->num_rows = num_rows;
  call->held = held.vec();
  return call;
}

}  // namespace

at::Tensor open_branch(const at::Tensor& x, int64_t num_rows, const TensorAxis& axis) {
  if (axis.size() == 1) return view_rows(x);
  return OpenBranchFunction::apply(x, make_call(axis, num_rows, x.sizes()));
}

at::Tensor close_branch(const at::Tensor& y_SD, at::IntArrayRef like, const TensorAxis& axis) {
  if (axis.size() == 1) return y_SD.view(like);
  return CloseBranchFunction::apply(y_SD, make_call(axis, y_SD.size(0), like));
}

}  // namespace trireme::parallel
