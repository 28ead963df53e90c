#include "trireme/tasks/recommend/layers/mlp.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/base/words.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::tasks {
namespace {

void add_linear(torch::nn::ModuleList& list, int64_t in, int64_t out, bool bias) {
  list->push_back(torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias)));
}

at::Tensor apply_linear(torch::nn::ModuleList& list, size_t layer, const at::Tensor& x,
                        Activation activation = Activation::kNone) {
  const auto& linear = list->at<torch::nn::LinearImpl>(layer);
  return fused_linear(x, linear.weight, linear.bias, activation);
}

}  // namespace

std::vector<int64_t> parse_widths(const std::string& text, const std::string& key) {
  std::vector<int64_t> widths;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int64_t width = 0;
    const auto [rest, error] = std::from_chars(at, end, width);
    const bool is_number =
        error == std::errc() && (rest == end || (*rest == ',' && rest + 1 < end));
    TRIREME_CHECK(is_number && width >= 1 && width <= kMaxWidth, key, " is \"", shown(text),
                  "\"; expected widths from 1 to ", kMaxWidth,
                  " separated by commas, such as \"512,256\"");
    widths.push_back(width);
    at = rest == end ? end : rest + 1;
  }
  return widths;
}

Mlp::Mlp(const std::vector<int64_t>& widths, bool ends_with_relu)
    : ends_with_relu_(ends_with_relu) {
  register_module("layers", layers_);
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    add_linear(layers_, widths[i], widths[i + 1], /*bias=*/true);
  }
}

at::Tensor Mlp::forward(at::Tensor x) {
  for (size_t i = 0; i < layers_->size(); ++i) {
    const bool has_relu = i + 1 < layers_->size() || ends_with_relu_;
    x = apply_linear(layers_, i, x, has_relu ? Activation::kRelu : Activation::kNone);
  }
  return x;
}

double mlp_flops(const std::vector<int64_t>& widths) {
  double flops = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    flops += 2 * static_cast<double>(widths[i] * widths[i + 1]);
  }
  return flops;
}

CrossNetwork::CrossNetwork(int64_t width, int64_t rank, int64_t layers) {
  register_module("down", down_);
  register_module("up", up_);
  for (int64_t i = 0; i < layers; ++i) {
    add_linear(down_, width, rank, /*bias=*/false);
    add_linear(up_, rank, width, /*bias=*/true);
  }
}

at::Tensor CrossNetwork::forward(const at::Tensor& x0) {
  at::Tensor x = x0;
  for (size_t i = 0; i < down_->size(); ++i) {
    x = at::addcmul(x, x0, apply_linear(up_, i, apply_linear(down_, i, x)));
  }
  return x;
}

void draw_values(torch::nn::Module& module, uint64_t seed) {
  for (const auto& item : module.named_parameters()) {
    at::Tensor values = at::empty(item.value().sizes(), at::kFloat);
    const bool is_weight = values.dim() == 2;
    const int64_t terms = is_weight ? values.size(0) + values.size(1) : 2 * values.size(0);
    const double deviation = std::sqrt(2 / static_cast<double>(terms));
    const RandomKey key = random_key(seed, item.key());
    auto* const out = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      out[i] = static_cast<float>(deviation * random_normal(key, static_cast<uint64_t>(i)));
    }
    const at::NoGradGuard guard;
    item.value().copy_(values);
  }
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kReluRows = 128;  // minimum samples per thread

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
  const at::Tensor y_BO = parallel::own_linear(x_BI, {weight_OI, bias_O}, {});
  return activation == Activation::kRelu ? at::relu(y_BO) : y_BO;
}

}  // namespace trireme::tasks
