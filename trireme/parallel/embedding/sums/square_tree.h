// Sums of the squares of a row's gradient in one fixed order, whatever ranks its columns are on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/machine/multiversion.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// The fixed order in which the squares of one row's gradient are summed over its columns.
//
// The columns are the leaves of one binary tree, like the samples of sample_tree.h: column d and
// column d ^ 1 are neighbours, then pairs, then pairs of pairs. The tree depends only on the
// columns' numbers. So a rank that has some columns of a row sums each subtree that lies in them,
// and whoever has all of these sums has the bits of a sum over the whole row. An even part whose
// width is a power of two is one subtree; columns [begin, end) are at most 2 log2(end).

// Adds n numbers, a power of two, up the tree. Arrays of a fixed size let the compiler vectorise.
template <int64_t n, typename scalar>
TRIREME_INLINE scalar sum_up_pairs(const scalar* values) {
  if constexpr (n == 1) {
    return values[0];
  } else {
    scalar pairs[n / 2];
    for (int64_t j = 0; j < n / 2; ++j) pairs[j] = values[2 * j] + values[2 * j + 1];
    return sum_up_pairs<n / 2>(pairs);
  }
}

template <typename number, int64_t n, typename scalar>
TRIREME_INLINE number sum_squares_of(const scalar* values) {
  number pairs[n / 2];
  for (int64_t j = 0; j < n / 2; ++j) {
    const auto left = static_cast<number>(values[2 * j]);
    const auto right = static_cast<number>(values[2 * j + 1]);
    pairs[j] = left * left + right * right;
  }
  return sum_up_pairs<n / 2>(pairs);
}

// The sum of the squares of n >= 1 neighbouring columns. The first one is column 0 or begins a
// subtree that contains them all.
template <typename number, typename scalar>
TRIREME_INLINE number sum_squares(const scalar* values, int64_t n) {
  constexpr int64_t kLargest = 128, kSmallest = 16;
  // The sums of subtrees, each to the right of the one below it and not larger.
  number stack[64];
  int top = 0;
  const scalar* const end = values + n;
  for (int64_t count = 1; end - values >= kLargest; ++count, values += kLargest) {
    number sum = sum_squares_of<number, kLargest>(values);
    for (int64_t pairs = count; pairs % 2 == 0; pairs /= 2) sum = stack[--top] + sum;
    stack[top++] = sum;
  }
  if (end - values >= 64) {
    stack[top++] = sum_squares_of<number, 64>(values);
    values += 64;
  }
  if (end - values >= 32) {
    stack[top++] = sum_squares_of<number, 32>(values);
    values += 32;
  }
  if (end - values >= kSmallest) {
    stack[top++] = sum_squares_of<number, kSmallest>(values);
    values += kSmallest;
  }
  if (values < end) {  // zeros add nothing to squares
    scalar rest[kSmallest] = {};
    for (int64_t j = 0; j < end - values; ++j) rest[j] = values[j];
    stack[top++] = sum_squares_of<number, kSmallest>(rest);
  }
  number sum = stack[--top];
  while (top > 0) sum = stack[--top] + sum;
  return sum;
}

// The sums of squares of each subtree of some columns. By several threads.
// begins: subtrees_of() the columns; of whole rows {0} will do
// Shapes: rows [n, columns.size] fp32 or fp64 -> [begins.size(), n] of `dtype`, fp64 or the rows'
at::Tensor squares_of(const at::Tensor& rows, mesh::Range columns, std::span<const int64_t> begins,
                      c10::ScalarType dtype);

// Sums further up the tree, from the sums of all subtrees of some rows.
// begins: of the subtrees, ascending
// sums: [n] of each of them; the first becomes those of whole rows, what is in the others is lost
void join_subtrees(std::span<const int64_t> begins, std::span<const at::Tensor> sums);

// Sums the squares of rows whose columns are on several ranks.

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
// another rank receives it. It has the bits of a sum over whole rows.
// group: null for one rank
// Comm:       for each row num_square_sums() numbers to each other rank that receives: 1 if this
//             rank's columns are a power of two that begin at a multiple of it. One all-to-all for
//             all tables.
// Collective: every rank of the group, with or without columns
std::vector<at::Tensor> gather_squares(std::span<const SplitRows> tables, comm::Communicator* group,
                                       const SquareOptions& options);

// How many sums a rank sends for a row: one for each of its columns' subtrees.
int64_t num_square_sums(mesh::Range columns);

}  // namespace trireme::parallel
