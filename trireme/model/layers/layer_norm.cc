#include "trireme/model/layers/layer_norm.h"

#include <ATen/ATen.h>

#include "trireme/parallel/tensor/replicated_weight.h"

namespace trireme::model::inline internal {

LayerNorm::LayerNorm(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype)
    : epsilon_(config.norm_epsilon), axis_(axes.tensor) {
  weight_D = register_parameter("weight", at::ones({config.width}, dtype));
  bias_D = register_parameter("bias", at::zeros({config.width}, dtype));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) {
  return at::layer_norm(x, weight_D.sizes(), parallel::weight_of_rows(weight_D, axis_),
                        parallel::weight_of_rows(bias_D, axis_), epsilon_);
}

}  // namespace trireme::model::inline internal
