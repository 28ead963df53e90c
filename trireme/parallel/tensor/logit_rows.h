// A chunk of rows of logits whose columns, the vocabulary, the ranks of a tensor axis may share.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel::inline internal {

// A rank's numbers about a row: `top` and `sum`, of which log(sum) + top is the logarithm of the
// summed exponentials of its logits, and the target's logit.
inline constexpr int64_t kNumStats = 3;

// Of all ranks: [C, 3] fp64 -> [p, C, 3].
// Comm:       24 bytes per row from each rank to all
// Collective: every rank of the axis
at::Tensor gather_stats(const at::Tensor& mine_C3, const TensorAxis& axis);

struct LogitRows {
  at::Tensor logits_Cv;     // fp32 or fp64
  at::Tensor targets_C;     // int64
  int64_t first_row = 0;    // of the vocabulary, where this rank's columns begin
  bool has_ignored = true;  // whether some targets may be kIgnoredTarget
};

struct RowsLoss {
  at::Tensor sum;          // scalar fp64
  at::Tensor gradient_Cv;  // softmax - onehot; zero in rows of ignored targets
};

// The loss of the rows by libtorch's operators where the tensors are: the host waits for nothing.
// gradient: the type of the gradient, which is rounded once; none if empty
// Comm:       gather_stats()
// Collective: every rank of the axis
RowsLoss loss_of_rows(const LogitRows& rows, const TensorAxis& axis,
                      std::optional<at::ScalarType> gradient);

}  // namespace trireme::parallel::inline internal
