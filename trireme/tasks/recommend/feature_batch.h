// The ids of a batch of prepared records, as embedding tables take them.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/jagged_ids.h"

namespace trireme::tasks::inline internal {

// The ids of some columns of a batch, in the order of `columns`. A column may come twice.
// Shapes: ids_BK [B, K] int64: sample by sample its ids, column after column, then anything;
//         lengths_BC [B, C] int64: how many each column has
// Throws: ConfigError when the lengths of a sample are negative or exceed K
parallel::JaggedIds ids_of_columns(const at::Tensor& ids_BK, const at::Tensor& lengths_BC,
                                   std::span<const int64_t> columns);

}  // namespace trireme::tasks::inline internal
