#include "trireme/parallel/tensor/branch_rows.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

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
  // sum_rows() works in place.
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
    // autograd forbids an output that is the input itself.
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

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct PickCall : torch::CustomClassHolder {
  TensorAxis axis;
  at::Tensor places;  // [m] int64: where this rank's picked rows go in the result
  at::Tensor rows;    // [m] int64: where they lie among the rank's own
  int64_t num_picked = 0;
  int64_t num_own = 0;  // s
};

class PickRowsFunction : public torch::autograd::Function<PickRowsFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_sD,
                            const c10::intrusive_ptr<PickCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::Tensor y_nD = empty_on(call->axis, {call->num_picked, x_sD.size(1)}, x_sD.options());
    y_nD.zero_();
    y_nD.index_copy_(0, call->places, x_sD.index_select(0, call->rows));
    // All but one of a row's terms are zero, so the sum is exact.
    const auto start = MovingRows::Clock::now();
    return MovingRows(call->axis, y_nD, call->axis.group->all_reduce(y_nD), start).wait();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<PickCall>(ctx->saved_data["call"].toCapsule());
    const at::Tensor grad_sD = at::zeros({call->num_own, grads[0].size(1)}, grads[0].options());
    grad_sD.index_copy_(0, call->rows, grads[0].index_select(0, call->places));
    return {grad_sD, at::Tensor()};
  }
};

}  // namespace

at::Tensor pick_rows(const at::Tensor& x, const at::Tensor& rows_n, int64_t num_rows,
                     const TensorAxis& axis) {
  const at::Tensor own_sD = view_rows(x);
  const bool is_split = axis.sequence && axis.size() > 1;
  const mesh::Range own = is_split ? axis.own_rows(num_rows) : mesh::Range{0, num_rows};
  TRIREME_ASSERT(own_sD.size(0) == own.size, own_sD.size(0), " rows on rank ", axis.rank(), " of ",
                 axis.size(), ", which holds ", own.size, " of ", num_rows);
  const at::Tensor rows = rows_n - own.offset;
  if (!is_split) return own_sD.index_select(0, rows);
  auto call = c10::make_intrusive<PickCall>();
  call->axis = axis;
  call->places = rows.ge(0).logical_and(rows.lt(own.size)).nonzero().squeeze(1);
  call->rows = rows.index_select(0, call->places);
  call->num_picked = rows_n.numel();
  call->num_own = own.size;
  return PickRowsFunction::apply(own_sD, call);
}

}  // namespace trireme::parallel
