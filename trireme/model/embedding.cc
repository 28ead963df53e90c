#include "trireme/model/embedding.h"

#include <ATen/ATen.h>

namespace trireme::model {

Embedding::Embedding(int64_t rows, int64_t width, at::ScalarType dtype) {
  weight_VD = register_parameter("weight", at::zeros({rows, width}, dtype));
}

at::Tensor Embedding::forward(const at::Tensor& tokens_BT) {
  return at::embedding(weight_VD, tokens_BT);
}

}  // namespace trireme::model
