// Codes for rows of numbers that share a scale: whole numbers up to a largest one, and signs.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::comm {

// Each row's largest magnitude / most; 0 for a row of zeros.
// Shapes: rows [b, w] -> [b, 1]
at::Tensor scales_of_largest(const at::Tensor& rows, int most);

// Rows / scales as whole numbers from -most to most, half to even. NaN becomes 0.
// Shapes: rows [b, w], scales [b, 1] -> [b, w] of the rows' dtype
at::Tensor nearest_whole(const at::Tensor& rows, const at::Tensor& scales, int most);

// The root of each row's mean square, in fp64 as a sum in fp32 might overflow. With signs it keeps
// the row's norm.
// counts: of the numbers in each row; the others are 0. Taken as at least 1
// Shapes: rows [b, w], counts [b, 1] -> [b, 1] fp64
at::Tensor scales_of_norm(const at::Tensor& rows, const at::Tensor& counts);

}  // namespace trireme::comm
