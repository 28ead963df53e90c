// Linear layers of several experts at once: each row is multiplied by its own expert's weight.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Takes over the gradient of a weight and returns true, or returns false: compute it now. Empty:
// never.
using DeferGradient =
    std::function<bool(const at::Tensor& leaf, std::function<at::Tensor()> gradient)>;

// BLAS libraries choose other kernels for a product of few rows, and those round otherwise. A
// product of fewer rows than this is computed with rows of zeros beside them. A row then has the
// same bits however many rows its expert has; grouped_linear_test holds this machine to it.
int64_t min_rows_of_product(at::ScalarType dtype);

// y_i = x W_i^T for each stack of weights, expert by expert. x's gradient is summed over the stacks
// inside the products. A weight's gradient adds its rows in their order; that of an expert without
// rows is zero.
// Shapes: x_RD [R, D], the rows of expert 0 first; W_i [E, F_i, D]; counts [E], the sum being R
//         -> y_i [R, F_i]
std::vector<at::Tensor> grouped_linear(const at::Tensor& x_RD,
                                       const std::vector<at::Tensor>& weights,
                                       std::span<const int64_t> counts,
                                       const DeferGradient& defer = {});

}  // namespace trireme::parallel
