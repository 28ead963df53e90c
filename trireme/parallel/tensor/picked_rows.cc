#include "trireme/parallel/tensor/picked_rows.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
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
