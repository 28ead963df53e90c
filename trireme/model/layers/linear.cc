#include "trireme/model/layers/linear.h"

#include <ATen/ATen.h>

namespace trireme::model::inline internal {

Linear::Linear(int64_t in, int64_t out, bool with_bias, at::ScalarType dtype) {
  weight = register_parameter("weight", at::zeros({out, in}, dtype));
  if (with_bias) bias = register_parameter("bias", at::zeros({out}, dtype));
}

}  // namespace trireme::model::inline internal
