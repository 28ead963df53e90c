// This rank's part of one embedding table, with its optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel {

// A tensor of a table as a checkpoint keeps it.
struct TableTensor {
  std::string name;     // "<table>.weight", or "<state>.<table>.weight"
  at::Tensor local;     // this rank's box of the layout; filled in place by a load
  mesh::Layout layout;  // [rows, width], or [rows] for one number per row
  int rank = 0;         // this rank's index in the layout
};

class EmbeddingTable {
 public:
  // The initial value of an element depends only on the seed, the table's name and the element's
  // index in the whole table.
  // dtype: fp32 or fp64, of the rows and of what is summed from them
  // Throws: ConfigError for kRowWiseAdaGrad on a table that is split by columns: no rank would have
  //         a whole row's gradient
  EmbeddingTable(const TableConfig& config, const mesh::Axis& axis, int rank, c10::ScalarType dtype,
                 uint64_t seed, const RowOptimizerConfig& optimizer);

  const TableConfig& config() const { return config_; }
  const mesh::Layout& layout() const { return layout_; }
  // [rows, width] of this rank's box.
  const at::Tensor& weights() const { return weights_; }
  RowOptimizer& optimizer() { return optimizer_; }

  // The weights and the optimizer's states, which share memory with the table. Rows are caught up
  // first.
  std::vector<TableTensor> state();

 private:
  TableConfig config_;
  mesh::Layout layout_;
  int rank_;
  at::Tensor weights_;
  RowOptimizer optimizer_;
};

}  // namespace trireme::parallel
