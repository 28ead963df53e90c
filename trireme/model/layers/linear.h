// The weights of a linear layer, [out, in] as in torch and Hugging Face. The functions that
// multiply by them, on one rank or several, are in parallel/tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/parallel/tensor/column_linear.h"

namespace trireme::model::inline internal {

class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, at::ScalarType dtype);

  parallel::LinearWeight weights() const { return {weight, bias}; }

  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out]; undefined without bias
};

}  // namespace trireme::model::inline internal
