#include "trireme/spmd/graph/traced_tensor.h"

#include <ATen/Functions.h>

#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd {

at::Tensor traced(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  auto keys = c10::DispatchKeySet(c10::computeDispatchKey(dtype, c10::Layout::Strided, c10::kCPU));
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      keys.add(kPlacedKey), c10::scalarTypeToTypeMeta(dtype), c10::Device(c10::kCPU));
  impl->set_sizes_and_strides(sizes, strides);
  impl->set_backend_meta(c10::make_intrusive<PlacedMeta>(nullptr, at::Tensor(), Places()));
  return at::Tensor(std::move(impl));
}
at::Tensor traced(const at::Tensor& meta) {
  return traced(meta.sizes(), meta.strides(), meta.scalar_type());
}
at::Tensor meta_of(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype).device(c10::kMeta));
}
at::Tensor meta_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  return meta_of(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

}  // namespace trireme::spmd
