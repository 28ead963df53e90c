// One table over remote rows: the rows of the look-up under way, in slots, and the table's tensors
// for checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/embedding_table.h"
#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/rows/stored_rows.h"
#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel {

// Not thread safe.
class RemoteTable {
 public:
  // Throws: ConfigError for a table with a memory limit or an open vocabulary
  RemoteTable(std::shared_ptr<RemoteRows> rows, size_t number, const TableConfig& config);

  // Begins to pull rows into the next free slots, and adds slots as needed.
  // weights: the optimizer's
  void fetch(std::span<const int64_t> rows, const at::Tensor& weights, RowOptimizer& optimizer,
             std::vector<int64_t>& slots);
  void release() { num_slots_ = 0; }
  void prefetch(std::span<const int64_t> rows) { rows_->prefetch(number_, rows); }

  // This process's share of the weights and of the optimizer's states.
  std::vector<TableTensor> state(const TableConfig& config, const at::Tensor& weights,
                                 const RowOptimizer& optimizer) const;

 private:
  std::shared_ptr<RemoteRows> rows_;
  size_t number_;
  int64_t num_slots_ = 0;  // in use
};

}  // namespace trireme::parallel
