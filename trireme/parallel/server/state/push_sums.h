// Sums the pushes to one piece for one update, and reads numbers from payloads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/server/link/frame.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::parallel {

// The rows at the beginning of the payload of a sparse push or of a pull.
// Throws: ConfigError if the payload is too short
std::span<const int64_t> rows_in(const Frame& frame);
// Throws: ConfigError unless `rows` ascend within [0, num_rows)
void check_rows(std::span<const int64_t> rows, int64_t num_rows);

// The 64-bit numbers of a payload.
// Throws: ConfigError unless their count is a multiple of `group`
std::vector<int64_t> numbers_of(const Frame& frame, int64_t group);

struct PushSum {
  std::vector<int64_t> rows;  // sparse piece: all pushed rows, ascending
  at::Tensor values;          // [rows, width]
};
// Sums in the order of `pushes`, with the same bits as all_reduce() over as many ranks.
PushSum sum_pushes(const Piece& piece, std::span<const Frame* const> pushes);

// What a worker has learned of a piece, and what it counts.
struct Difference {
  at::Tensor values;  // [rows, width]
  double weight = 0;
};
// Sum of (weight / sum of weights) * values, in the order given. Each element is rounded after each
// operation. Empty if nothing has any weight.
std::optional<at::Tensor> weighted_mean(std::span<const Difference> differences);

}  // namespace trireme::parallel
