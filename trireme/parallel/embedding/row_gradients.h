// Sums the gradients of rows in the order of sample_tree.h: on one rank, and what all ranks send to
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/id_exchange.h"
#include "trireme/parallel/embedding/sums/sample_tree.h"
#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel {

// The terms that each row's sum consists of.
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
// The number of these.
int64_t count_sums(const OwnIds& own, mesh::Range asked);

// Brings together what all ranks add to the gradients of this rank's rows of one table.

// Ranks are added in their order, which is that of their samples.
template <typename scalar>
class TermMerger {
 public:
  // The terms of this rank's own ids [asked.offset, asked.offset + asked.size).
  // first_row, first_column: of this rank's part
  void add_own(const OwnIds& own, mesh::Range asked, int64_t first_row, int64_t first_column,
               const RowTerms<scalar>& terms);
  // sums: [ids.num_sums, width] by id and then by subtree; must outlive what merge() returns
  // subtrees: the beginnings of the sender's
  void add_arrived(const ArrivedIds& ids, std::span<const int64_t> subtrees, const scalar* sums,
                   int64_t width);

  struct Merged {
    std::vector<int64_t> rows;  // of this rank's part, distinct, ascending
    RowTerms<scalar> terms;     // of each of them
  };
  // num_rows: of this rank's part
  Merged merge(int64_t num_rows) const;

 private:
  std::vector<int64_t> rows_;
  RowTerms<scalar> terms_;  // by rank, then by row
};

}  // namespace trireme::parallel
