// The gradients of one piece in one update.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/server/link/frame.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::parallel::inline internal {

// The rows that the payload of a sparse push or of a pull begins with.
// Throws: ConfigError when the payload is too short
std::span<const int64_t> rows_in(const Frame& frame);
// Throws: ConfigError unless `rows` ascend within [0, num_rows)
void check_rows(std::span<const int64_t> rows, int64_t num_rows);

// A payload of 64-bit numbers.
// Throws: ConfigError unless they come in groups of `group`
std::vector<int64_t> numbers_of(const Frame& frame, int64_t group);

struct PushSum {
  std::vector<int64_t> rows;  // of a sparse piece: all that were pushed, ascending
  at::Tensor values;          // [rows, width]
};
// Sums in the order of `pushes`, with the bits of comm's all_reduce() over that many ranks.
PushSum sum_pushes(const Piece& piece, std::span<const Frame* const> pushes);

}  // namespace trireme::parallel::inline internal
