#include "trireme/parallel/tensor/replicated_weight.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ReplicatedCall : torch::CustomClassHolder {
  explicit ReplicatedCall(TensorAxis axis) : axis(axis) {}
  TensorAxis axis;
};

class ReplicatedWeightFunction : public torch::autograd::Function<ReplicatedWeightFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight,
                            const c10::intrusive_ptr<ReplicatedCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return weight.view_as(weight);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<ReplicatedCall>(ctx->saved_data["call"].toCapsule());
    // Summed in fp32 at least, and rounded once.
    const at::ScalarType dtype = grads[0].scalar_type();
    const at::Tensor sum = empty_on(call->axis, grads[0].sizes(),
                                    grads[0].options().dtype(at::promote_types(dtype, at::kFloat)));
    sum.copy_(grads[0]);
    const auto start = MovingRows::Clock::now();
    MovingRows(call->axis, sum, call->axis.group->all_reduce(sum), start).wait();
    return {sum.to(dtype), at::Tensor()};
  }
};

}  // namespace

at::Tensor replicated_weight(const at::Tensor& weight, const TensorAxis& axis) {
  if (axis.size() == 1) return weight;
  return ReplicatedWeightFunction::apply(weight, c10::make_intrusive<ReplicatedCall>(axis));
}

at::Tensor weight_of_rows(const at::Tensor& weight, const TensorAxis& axis) {
  return axis.sequence ? replicated_weight(weight, axis) : weight;
}

}  // namespace trireme::parallel
