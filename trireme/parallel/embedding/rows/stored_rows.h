// Rows of tables that are not in this process's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// One of a table's tensors whose rows are not in this process's memory.
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
  // The rows of the box that a load must write. The owner of the others reads them itself.
  virtual std::vector<mesh::Range> wanted_rows(int64_t num_rows) const { return {{0, num_rows}}; }
};

// Rows that other processes have, such as parameter servers. Tables over them pull the rows that a
// look-up reads, and push gradients instead of updating rows.

struct RowGradients;

// The rows of all tables of a model; `table` is a number from 0 in their order. Not thread safe.
class RemoteRows {
 public:
  virtual ~RemoteRows() = default;

  // Begins to bring rows as they are before the next step.
  // rows: distinct, ascending. out: [rows, width], contiguous; complete after wait_pulled()
  // Throws: CommError when the rows' owner is lost; so do the functions below
  virtual void pull(size_t table, std::span<const int64_t> rows, const at::Tensor& out) = 0;
  virtual void wait_pulled() = 0;
  // The step after this one pulls these rows. They may be brought already, if that step need not
  // see this one's pushes.
  virtual void prefetch(size_t table, std::span<const int64_t> rows) = 0;
  // One step of all tables.
  // gradients: of each table, rows ascending
  virtual void push(std::span<const RowGradients> gradients, double learning_rate) = 0;
  // Waits until the rows have what every process has pushed.
  // Collective: every process that pushes
  virtual void settle() = 0;

  // A checkpoint gets the rows in even shares: share number `rank` of `count` from this process.
  struct Share {
    int rank = 0;
    int count = 1;
  };
  virtual Share saved_share() const { return {}; }
  // A table's tensor: 0 = the weights, 1 + i = the optimizer's state i.
  // Shapes: -> rows [begin, end) of the whole tensor
  virtual at::Tensor read(size_t table, size_t tensor, int64_t begin, int64_t end) = 0;
  // The rows of the whole table that a load brings to this process, ascending; it gets them by
  // write(). None: their owner reads them itself.
  virtual std::vector<mesh::Range> wanted_rows(size_t /*table*/) const { return {}; }
  virtual void write(size_t table, size_t tensor, int64_t begin, const at::Tensor& values) = 0;
};

}  // namespace trireme::parallel
