// One of a table's tensors whose rows are not in this process's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"

namespace trireme::parallel {

class StoredRows {
 public:
  virtual ~StoredRows() = default;
  // Shapes: -> rows [begin, end) of this rank's box
  // Throws: Error when the disk fails, CommError when the rows' owner is lost; so does write()
  virtual at::Tensor read(int64_t begin, int64_t end) = 0;
  // Shapes: -> these rows, which ascend
  virtual at::Tensor read(std::span<const int64_t> rows) = 0;
  // values: the rows from `begin` on, of the table's dtype, contiguous
  virtual void write(int64_t begin, const at::Tensor& values) = 0;
  // Which of the box's rows a load has to write; the owner of the others reads them itself.
  virtual std::vector<mesh::Range> wanted_rows(int64_t num_rows) const { return {{0, num_rows}}; }
};

}  // namespace trireme::parallel
