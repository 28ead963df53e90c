// Sums the gradients of rows in the order of sample_tree.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/id_exchange.h"
#include "trireme/parallel/embedding/sums/sample_tree.h"
#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel::inline internal {

// What each of some rows is summed from.
template <typename scalar>
struct RowTerms {
  std::vector<Term<scalar>> terms{};  // by row, within one by sample
  std::vector<int64_t> first{0};      // [n + 1] row i has the terms [first[i], first[i + 1])

  int64_t size() const { return std::ssize(first) - 1; }
  std::span<const Term<scalar>> of(int64_t row) const {
    const auto begin = static_cast<size_t>(first[static_cast<size_t>(row)]);
    const auto end = static_cast<size_t>(first[static_cast<size_t>(row) + 1]);
    return std::span(terms).subspan(begin, end - begin);
  }
};

// Where a table's gradients lie: those of sample b, or with kNone of id m, at values + b * stride.
template <typename scalar>
struct OutputGradients {
  const scalar* values = nullptr;
  int64_t stride = 0;
  const scalar* weights = nullptr;  // [m]; null: all 1
};

// The terms of each distinct id of this rank.
// first_sample: the number of this rank's first sample among those of all ranks
template <typename scalar>
RowTerms<scalar> terms_of_own(const OwnIds& own, const TableIds& ids, Pooling pooling,
                              const OutputGradients<scalar>& gradients, int64_t first_sample);

// Calls take(first, count, sums) for runs of rows that cover all; several calls run at once.
// sums: [count, width] of the rows from `first` on, valid during the call
template <typename scalar>
using TakeSums = std::function<void(int64_t first, int64_t count, const scalar* sums)>;
template <typename scalar>
void sum_rows(const RowTerms<scalar>& terms, int64_t width, const TakeSums<scalar>& take);

// The sums of the ids [asked.offset, asked.offset + asked.size), one after the other: for each id
// one for each subtree in which it has samples.
// Shapes: out [sums, columns.size]
template <typename scalar>
void sum_subtrees(const RowTerms<scalar>& terms, mesh::Range asked, mesh::Range columns,
                  std::span<const int64_t> subtrees, scalar* out);
// How many those are.
int64_t count_sums(const OwnIds& own, mesh::Range asked);

}  // namespace trireme::parallel::inline internal
