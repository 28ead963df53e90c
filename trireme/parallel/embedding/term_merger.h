// Brings together what all ranks add to the gradients of this rank's rows of one table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/parallel/embedding/id_exchange.h"
#include "trireme/parallel/embedding/row_gradients.h"

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
