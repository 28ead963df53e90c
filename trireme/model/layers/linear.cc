#include "trireme/model/layers/linear.h"

#include <ATen/ATen.h>

#include "trireme/model/family/init.h"

namespace trireme::model {

Linear::Linear(int64_t in, int64_t out, bool with_bias, at::ScalarType dtype) {
  weight = register_parameter("weight", new_parameter({out, in}, dtype));
  if (with_bias) bias = register_parameter("bias", new_parameter({out}, dtype));
}

}  // namespace trireme::model
