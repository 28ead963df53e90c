#include "trireme/tasks/recommend/layers/mlp.h"

#include <charconv>
#include <cmath>

#include <ATen/ATen.h>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/base/shown.h"
#include "trireme/tasks/recommend/layers/fused_linear.h"

namespace trireme::tasks::inline internal {
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

}  // namespace trireme::tasks::inline internal
