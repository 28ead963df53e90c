#include "trireme/dataset/source.h"

#include <algorithm>

namespace trireme::dataset {

at::Tensor find_tensor(const NamedTensors& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::first);
  return found == tensors.end() ? at::Tensor() : found->second;
}

}  // namespace trireme::dataset
