// Products of bf16 matrices summed into fp32, by the oneMKL inside libtorch. libtorch itself has
// them only with a result in bf16, and copies a transposed operand first.
#pragma once

#include <cstdint>

#include "trireme/base/machine/bf16_blocks.h"

namespace trireme {

// Whether this processor has a matrix unit for bf16, and libtorch brings the function.
bool has_bf16_product();

// The bits of a matrix, or of its transpose.
struct Bf16Matrix {
  Rows<const uint16_t> rows;
  bool is_transposed = false;
};

// c = a b, or c += a b with `adds`, on libtorch's threads. Only where has_bf16_product().
// Shapes: a [M, K], b [K, N], c [M, N]; each dimension at least 1 and below 2^31
void bf16_product(int64_t M, int64_t N, int64_t K, const Bf16Matrix& a, const Bf16Matrix& b,
                  Rows<float> c, bool adds);

}  // namespace trireme
