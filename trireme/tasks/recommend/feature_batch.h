// The ids of a batch of prepared records, in the form that embedding tables accept.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/jagged_ids.h"

namespace trireme::tasks::inline internal {

// Returns the ids of some columns of a batch, in the order of `columns`. A column may occur twice.
// Shapes: ids_BK [B, K] int64: for each sample its ids, column after column, then any values;
//         lengths_BC [B, C] int64: the number of ids of each column
// Throws: ConfigError if a length is negative or the lengths of a sample exceed K
parallel::JaggedIds ids_of_columns(const at::Tensor& ids_BK, const at::Tensor& lengths_BC,
                                   std::span<const int64_t> columns);

}  // namespace trireme::tasks::inline internal
