#include "trireme/tasks/recommend/layers/fused_linear.h"

#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/tasks/recommend/layers/relu_gradients.h"

namespace trireme::tasks::inline internal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kReluRows = 128;  // at least so many samples per thread

// x W^T + b, and then the operation of that name. Its "relu" makes 0 of a NaN, so it is not used.
using LinearProduct = at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias, std::string_view operation,
                                 c10::List<std::optional<at::Scalar>> scalars,
                                 std::optional<std::string_view> algorithm);

// The product that torch.compile calls; nothing in a libtorch without oneDNN.
const std::optional<c10::TypedOperatorHandle<LinearProduct>>& one_dnn_linear() {
  static const auto found = []() -> std::optional<c10::TypedOperatorHandle<LinearProduct>> {
    const auto product = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!product || !product->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
    return product->typed<LinearProduct>();
  }();
  return found;
}

at::Tensor linear_product(const at::Tensor& x, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias = std::nullopt) {
  const at::AutoDispatchBelowADInplaceOrView direct;  // the product has no autograd of its own
  return one_dnn_linear()->call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(),
                                std::string_view());
}

// The gradient before the ReLU whose output is y_BO, and its transpose [O, B].
std::pair<at::Tensor, at::Tensor> before_relu(const at::Tensor& grad_out, const at::Tensor& y_BO) {
  const at::Tensor grad = grad_out.contiguous();
  const int64_t B = y_BO.size(0), O = y_BO.size(1);
  at::Tensor grad_BO = at::empty_like(y_BO), grad_OB = at::empty({O, B}, y_BO.options());
  const ReluProblem problem{.B = B,
                            .O = O,
                            .grad_out = grad.const_data_ptr<float>(),
                            .y = y_BO.const_data_ptr<float>(),
                            .grad_BO = grad_BO.mutable_data_ptr<float>(),
                            .grad_OB = grad_OB.mutable_data_ptr<float>()};
  at::parallel_for(0, B, kReluRows,
                   [&](int64_t begin, int64_t end) { relu_gradients(problem, begin, end); });
  return {grad_BO, grad_OB};
}

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_BI,
                            const at::Tensor& weight_OI, const std::optional<at::Tensor>& bias_O,
                            Activation activation) {
    const bool has_relu = activation == Activation::kRelu;
    at::Tensor y_BO = linear_product(x_BI, weight_OI, bias_O);
    if (has_relu) y_BO.relu_();
    ctx->saved_data["has_bias"] = bias_O.has_value();
    ctx->save_for_backward({x_BI, weight_OI, has_relu ? y_BO : at::Tensor()});
    return y_BO;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x_BI = saved[0], &weight_OI = saved[1], &relu_BO = saved[2];
    at::Tensor grad_BO = grads[0];
    at::Tensor grad_OB = grad_BO.t();
    if (relu_BO.defined()) std::tie(grad_BO, grad_OB) = before_relu(grad_BO, relu_BO);
    at::Tensor grad_x, grad_weight, grad_bias;
    if (ctx->needs_input_grad(0)) grad_x = linear_product(grad_BO, weight_OI.t());
    if (ctx->needs_input_grad(1)) grad_weight = linear_product(grad_OB, x_BI.t());
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    if (has_bias && ctx->needs_input_grad(2)) grad_bias = grad_BO.sum(0);
    return {grad_x, grad_weight, grad_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor fused_linear(const at::Tensor& x_BI, const at::Tensor& weight_OI,
                        const at::Tensor& bias_O, Activation activation) {
  const bool is_fused = one_dnn_linear() && x_BI.is_cpu() && x_BI.scalar_type() == at::kFloat &&
                        weight_OI.scalar_type() == at::kFloat && x_BI.dim() == 2 &&
                        x_BI.numel() > 0;
  if (is_fused) {
    // An argument of a Function is a defined tensor.
    const auto bias = bias_O.defined() ? std::optional(bias_O) : std::nullopt;
    return FusedLinear::apply(x_BI, weight_OI, bias, activation);
  }
  const at::Tensor y_BO = at::linear(x_BI, weight_OI, bias_O);
  return activation == Activation::kRelu ? at::relu(y_BO) : y_BO;
}

}  // namespace trireme::tasks::inline internal
