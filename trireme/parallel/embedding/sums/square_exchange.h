// Sums the squares of rows whose columns are on several ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel::inline internal {

inline constexpr int kEachRank = -1;

// Rows of one table. Ranks with columns of it, and those that receive, have the same rows.
struct SplitRows {
  at::Tensor values;                       // [n, columns of this rank] fp32 or fp64, contiguous
  std::span<const mesh::Range> columns{};  // [p] of each rank, in order; they cover all
  int receiver = kEachRank;                // who gets the sums
};

struct SquareOptions {
  c10::ScalarType dtype = c10::ScalarType::Float;  // of the sums: that of all values, or Double
  bool symmetric = true;                           // they lie in symmetric memory in transit
};

// The sum of squares of each row, over all of its columns: [n] for each table, undefined where
// another rank receives it. It has the bits of a sum over whole rows (square_tree.h).
// group: null for one rank
// Comm:       for each row num_square_sums() numbers to each other rank that receives: 1 if this
//             rank's columns are a power of two that begin at a multiple of it. One all-to-all for
//             all tables.
// Collective: every rank of the group, with or without columns
std::vector<at::Tensor> gather_squares(std::span<const SplitRows> tables, comm::Communicator* group,
                                       const SquareOptions& options);

// How many sums a rank sends for a row: one for each of its columns' subtrees.
int64_t num_square_sums(mesh::Range columns);

}  // namespace trireme::parallel::inline internal
