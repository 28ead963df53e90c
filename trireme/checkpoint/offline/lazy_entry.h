// Tensors for saves whose values are made when they are written, so that one at a time is in
// memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint::inline internal {

// make: returns the values. Writing to it fails with an InternalError.
std::shared_ptr<OffloadedTensor> lazy_tensor(std::string name, std::function<at::Tensor()> make);

// make: returns the values of rank `rank`'s box in `layout`. Only for save(); load() fails with an
// InternalError.
Entry lazy_entry(const std::string& name, c10::ScalarType dtype, const mesh::Layout& layout,
                 int rank, std::function<at::Tensor()> make);

}  // namespace trireme::checkpoint::inline internal
