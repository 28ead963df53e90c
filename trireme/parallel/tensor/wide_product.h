// Matrix products of bf16 on the CPU whose result is fp32, or is rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Whether a b is faster in a's own type than widened: bf16 on a processor that multiplies it.
bool multiplies_narrow(const at::Tensor& a);

// out = beta * out + a b, added up in out's type. Without multiplies_narrow(a) both are widened.
// Shapes: a [M, K], b [K, N] of one type; out [M, N] with dense rows
void multiply_wide(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, int beta = 0);

// factor * x in bf16. x is fp32, contiguous and on the CPU.
at::Tensor narrowed(const at::Tensor& x, double factor);

// The gradient of y = x W^T for W, in the type of `grad`, rounded once.
// Shapes: grad [S, F], x [S, D] -> [F, D]
at::Tensor weight_product(const at::Tensor& grad, const at::Tensor& x);

}  // namespace trireme::parallel
