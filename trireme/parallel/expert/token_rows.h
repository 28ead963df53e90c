// Moves tokens to the rows that experts read, and the experts' results back. Both directions are
// differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/parallel/expert/expert_order.h"

namespace trireme::parallel {

// A copy of each row's token. The gradient of a token is added in the order of its assignments.
// Shapes: x_SD [S, D] -> [R, D]
at::Tensor tokens_to_rows(const at::Tensor& x_SD, const ExpertOrder& order);

// Each token's sum of its rows times their weights, in the order of its assignments and at least in
// fp32. A dropped assignment adds nothing, and its weight has gradient zero.
// Shapes: rows_RD [R, D], weights_SK [S, k] -> [S, D] of the rows' dtype
at::Tensor rows_to_tokens(const at::Tensor& rows_RD, const at::Tensor& weights_SK,
                          const ExpertOrder& order);

}  // namespace trireme::parallel
