// Convolutions of a ResNet.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/conv.h>

namespace trireme::model {

// conv's output, without its bias. In bf16 and fp16 on CPUs that multiply fp32 faster
// (widens_factors()), it is computed in fp32 and rounded once; only the narrow x is kept for
// backward.
// Shapes: x [B, in, H, W] -> [B, out, H', W'], in x's dtype
at::Tensor convolution(const at::Tensor& x, const torch::nn::Conv2d& conv);

}  // namespace trireme::model
