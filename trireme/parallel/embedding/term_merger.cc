#include "trireme/parallel/embedding/term_merger.h"

#include <bit>

namespace trireme::parallel::inline internal {

template <typename scalar>
void TermMerger<scalar>::add_own(const OwnIds& own, mesh::Range asked, int64_t first_row,
                                 int64_t first_column, const RowTerms<scalar>& terms) {
  for (int64_t i = asked.offset; i < asked.offset + asked.size; ++i) {
    rows_.push_back(own.groups.ids[static_cast<size_t>(i)] - first_row);
    for (Term<scalar> term : terms.of(i)) {
      term.row += first_column;
      terms_.terms.push_back(term);
    }
    terms_.first.push_back(std::ssize(terms_.terms));
  }
}

template <typename scalar>
void TermMerger<scalar>::add_arrived(const ArrivedIds& ids, std::span<const int64_t> subtrees,
                                     const scalar* sums, int64_t width) {
  for (size_t i = 0; i < ids.rows.size(); ++i) {
    rows_.push_back(ids.rows[i]);
    for (uint64_t set = ids.subtrees[i]; set != 0; set &= set - 1) {
      terms_.terms.push_back(
          {sums, scalar{1}, subtrees[static_cast<size_t>(std::countr_zero(set))]});
      sums += width;
    }
    terms_.first.push_back(std::ssize(terms_.terms));
  }
}

// Grouping keeps the order of equal rows, so each row's terms stay in the order of the samples.
template <typename scalar>
typename TermMerger<scalar>::Merged TermMerger<scalar>::merge(int64_t num_rows) const {
  IdGroups groups = group_ids(rows_, num_rows);
  RowTerms<scalar> terms;
  terms.terms.reserve(terms_.terms.size());
  terms.first.reserve(groups.first.size());
  for (size_t i = 0; i < groups.ids.size(); ++i) {
    for (int64_t k = groups.first[i]; k < groups.first[i + 1]; ++k) {
      const auto of_rank = terms_.of(groups.places[static_cast<size_t>(k)]);
      terms.terms.insert(terms.terms.end(), of_rank.begin(), of_rank.end());
    }
    terms.first.push_back(std::ssize(terms.terms));
  }
  return {std::move(groups.ids), std::move(terms)};
}

template class TermMerger<float>;
template class TermMerger<double>;

}  // namespace trireme::parallel::inline internal
