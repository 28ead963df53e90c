// A linear layer and its activation as one autograd node, with the faster matrix product.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::tasks::inline internal {

enum class Activation { kNone, kRelu };

// activation(x W^T + b). On CPUs, fp32 products use oneDNN if libtorch was built with it, because
// MKL does not use AVX-512 on AMD processors. The gradient cannot be differentiated.
// Shapes: x_BI [B, I], weight_OI [O, I], bias_O [O] or undefined -> [B, O]
at::Tensor fused_linear(const at::Tensor& x_BI, const at::Tensor& weight_OI,
                        const at::Tensor& bias_O, Activation activation);

}  // namespace trireme::tasks::inline internal
