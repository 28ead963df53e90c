// Tensors of a trace, which have sizes and no memory, and of the meta device.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::spmd {

// On the CPU, with a PlacedMeta without a grid.
at::Tensor traced(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
at::Tensor traced(const at::Tensor& meta);
// The same on the meta device; tensors of it and undefined ones stay.
at::Tensor meta_of(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
at::Tensor meta_of(const at::Tensor& tensor);

}  // namespace trireme::spmd
