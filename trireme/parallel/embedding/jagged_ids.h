// The ids of a batch for many tables at once. Each sample has any number of ids for each table.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel {

// The tensors must not change until the look-up's backward is done.
// With i = t * B + s, sample s has for table t the ids values[offsets[i]] to
// values[offsets[i + 1] - 1], in this order, and the weights beside them. B is the number of this
// rank's samples, and may be 0.
struct JaggedIds {
  at::Tensor values;   // [n] int64
  at::Tensor offsets;  // [tables * B + 1] int64
  // [n]; may be undefined if no table has weights or there is no id. If they require a gradient
  // at start(), they get it: for each id its row times the gradient of its sample's vector.
  at::Tensor weights{};
  int64_t num_samples = 0;
};

// Shapes: values [n] int64, lengths_TB [tables, B] int64, weights [n] or undefined
// Throws: ConfigError when the lengths do not add up to n or one is negative
JaggedIds jagged_ids(const at::Tensor& values, const at::Tensor& lengths_TB,
                     const at::Tensor& weights = {});

// The ids of one table: views into a JaggedIds, which must outlive them.
struct TableIds {
  std::span<const int64_t> values;   // [n_t]
  std::span<const int64_t> offsets;  // [B + 1]; the first is that of values[0]
};
TableIds view_table(const JaggedIds& ids, int64_t table);

// Throws: ConfigError when the tensors do not fit together or lie on a device; with the table, the
//         sample and the id when an id is outside its table
void check_ids(const JaggedIds& ids, std::span<const TableConfig> tables);

}  // namespace trireme::parallel
