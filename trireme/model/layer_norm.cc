#include "trireme/model/layer_norm.h"

#include <ATen/ATen.h>

namespace trireme::model {

LayerNorm::LayerNorm(int64_t width, double epsilon, at::ScalarType dtype) : epsilon_(epsilon) {
  weight_D = register_parameter("weight", at::ones({width}, dtype));
  bias_D = register_parameter("bias", at::zeros({width}, dtype));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  return at::layer_norm(x, weight_D.sizes(), weight_D, bias_D, epsilon_);
}

}  // namespace trireme::model
