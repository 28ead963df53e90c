// Kernels for CUDA GPUs that do a layer's elementwise work in one pass over memory. libtorch's
// jiterator compiles them at their first use, so the build needs no CUDA compiler.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace trireme::model {

// Whether the functions below take this tensor: it is on a GPU, and the build's libtorch has CUDA.
// They compute in at least fp32 and round once.
bool has_gpu_kernels(const at::Tensor& tensor);

// silu(gate) * up.
// Shapes: gate, up and the result alike
at::Tensor gpu_swiglu(const at::Tensor& gate, const at::Tensor& up);

// Its gradients by gate and by up.
std::pair<at::Tensor, at::Tensor> gpu_swiglu_backward(const at::Tensor& grad,
                                                      const at::Tensor& gate, const at::Tensor& up);

// Turns each pair (i, i + H/2) of a head by the angle whose cosine and sine the table has; `back`:
// by its negative. Takes what turns_on_gpu() allows.
// Shapes: x_BTD [B, T, N * H] contiguous; cos_TH, sin_TH [>= T, H/2] contiguous -> [B, T, N * H]
at::Tensor gpu_turn(const at::Tensor& x_BTD, const at::Tensor& cos_TH, const at::Tensor& sin_TH,
                    bool back);

// Whether gpu_turn() takes x with this table: of x's type, or of fp32 for an x in bf16 whose heads
// have a width that 8 divides.
bool turns_on_gpu(const at::Tensor& x, const at::Tensor& table);

}  // namespace trireme::model
