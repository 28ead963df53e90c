// The sum of a token's rows, and its gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/parallel/expert/expert_order.h"

namespace trireme::parallel {

// The dtype of weights and sums: at least fp32.
at::ScalarType sum_type(at::ScalarType rows);

// Each token's sum of its rows times their weights, in the order of its assignments. A dropped
// assignment adds nothing.
// Shapes: rows_RD [R, D], weights_SK [S, k] of sum_type(); undefined: all 1 -> [S, D] of the rows'
//         dtype
at::Tensor sum_of_rows(const at::Tensor& rows_RD, const at::Tensor& weights_SK,
                       const ExpertOrder& order);

// The gradient of the weights; zero for a dropped assignment.
// Shapes: grad_SD [S, D] of the sums, rows_RD [R, D] -> [S, k] of sum_type()
at::Tensor gradient_of_weights(const at::Tensor& grad_SD, const at::Tensor& rows_RD,
                               const ExpertOrder& order);

// The weight of each row.
// Shapes: [S, k] -> [R]
at::Tensor weights_of_rows(const at::Tensor& weights_SK, const ExpertOrder& order);

// The rows of `table` times their weights: the gradient of the rows from that of the sums.
// Shapes: table [S, D], tokens_N [N] int64, weights_N [N] of sum_type() -> [N, D] of the table's
//         dtype
at::Tensor weighted_rows(const at::Tensor& table, const at::Tensor& tokens_N,
                         const at::Tensor& weights_N);

}  // namespace trireme::parallel
