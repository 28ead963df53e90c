// The order in which experts read tokens: expert by expert, and within one by token. An assignment
// is a (token, place among the token's experts); a row is an assignment that an expert computes.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// The rows that each expert reads, by source rank.
struct ExpertRows {
  std::vector<int64_t> counts;  // [experts * origins]: by expert, within one by origin
  int64_t origins = 1;          // from how many ranks

  std::vector<int64_t> of_experts() const;  // [experts]: summed over the origins
};

struct ExpertOrder {
  at::Tensor rows_SK;           // [S, k] int64: the row of each assignment; -1: dropped
  at::Tensor tokens_R;          // [R] int64: the token of each row
  std::vector<int64_t> counts;  // [E]: rows of each expert
  int64_t num_rows() const { return tokens_R.size(0); }
};

// Sorts the assignments by expert. Within an expert tokens keep their order. Waits for a device.
// Shapes: experts_SK [S, k] int64 in [0, num_experts); -1: nobody computes the assignment
// Throws: InternalError for another expert
ExpertOrder order_by_expert(const at::Tensor& experts_SK, int64_t num_experts);

}  // namespace trireme::parallel
