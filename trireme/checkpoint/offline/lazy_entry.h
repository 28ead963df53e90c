// Tensors for saves whose values are made when they are written, so that one at a time, or a part
// of a large one, is in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint::inline internal {

// A box that is made in parts of at most 32 MiB, some rows each; whole if a row has more than
// kChunkBytes. Writing to it fails with an InternalError.
// make: returns the values of that part of the box
using MakePart = std::function<at::Tensor(const mesh::Box& part)>;
std::shared_ptr<OffloadedTensor> lazy_box(std::string name, mesh::Box box, c10::ScalarType dtype,
                                          MakePart make);

// An entry for rank `rank`'s box in `layout`, as lazy_box(). Only for save(); load() fails with an
// InternalError.
Entry lazy_entry(const std::string& name, c10::ScalarType dtype, const mesh::Layout& layout,
                 int rank, MakePart make);

}  // namespace trireme::checkpoint::inline internal
