// Weighted sums of rows of heads, from tensors of any dtype to another, in one pass over the
// memory. Never communicates.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

struct WeightedRows {
  at::Tensor rows_BNtH;
  at::Tensor weight_BNt{};  // of each row, in accumulation_dtype(); undefined: 1
};

// to = a + b, each row times its weight, for any strides. Computes in accumulation_dtype() and
// rounds once. `to` may be the same tensor as a's rows, or share no memory with a and b.
// On CPUs a vector loop reads and writes each number of bf16, fp32 and fp64 once, where a head's
// row is dense. The bits depend neither on threads nor on the instruction set. Elsewhere ATen's
// operators compute it.
// Shapes: to, a, b: rows [B, N, t, H], weights [B, N, t]; b undefined: nothing is added
void combine_rows(const at::Tensor& to_BNtH, const WeightedRows& a, const WeightedRows& b = {});
// to = from, with the heads after the tokens. Rows of one dtype are copied as bytes.
// Shapes: [B, t, N, H]
void copy_rows(const at::Tensor& to_BtNH, const at::Tensor& from_BtNH);

}  // namespace trireme::parallel
