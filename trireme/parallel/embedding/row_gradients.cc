#include "trireme/parallel/embedding/row_gradients.h"

#include <algorithm>
#include <bit>

#include <ATen/Parallel.h>

namespace trireme::parallel {
namespace {

constexpr int64_t kRowsPerRun = 64;

// Where the terms of each sum begin: those of an id, cut at the subtrees. The last is their end.
template <typename scalar>
std::vector<int64_t> first_of_sums(const RowTerms<scalar>& terms, mesh::Range asked,
                                   std::span<const int64_t> subtrees) {
  std::vector<int64_t> firsts;
  for (int64_t i = asked.offset; i < asked.offset + asked.size; ++i) {
    auto next = subtrees.begin();  // the first subtree after that of the term before
    for (int64_t k = terms.first[static_cast<size_t>(i)];
         k < terms.first[static_cast<size_t>(i) + 1]; ++k) {
      const int64_t sample = terms.terms[static_cast<size_t>(k)].sample;
      const bool is_first = k == terms.first[static_cast<size_t>(i)];
      // Terms of one id are in the order of samples; a cut lies where a subtree ends.
      if (!is_first && (next == subtrees.end() || sample < *next)) continue;
      next = std::upper_bound(next, subtrees.end(), sample);
      firsts.push_back(k);
    }
  }
  firsts.push_back(terms.first[static_cast<size_t>(asked.offset + asked.size)]);
  return firsts;
}

}  // namespace

template <typename scalar>
RowTerms<scalar> terms_of_own(const OwnIds& own, const TableIds& ids, Pooling pooling,
                              const OutputGradients<scalar>& gradients, int64_t first_sample) {
  RowTerms<scalar> result{.first = own.groups.first};
  result.terms.resize(own.groups.places.size());
  for (size_t k = 0; k < result.terms.size(); ++k) {
    const int64_t place = own.groups.places[k];
    const int64_t sample = own.sample_of_place[static_cast<size_t>(place)];
    const auto at = static_cast<size_t>(sample);
    scalar weight = gradients.weights == nullptr ? scalar{1} : gradients.weights[place];
    if (pooling == Pooling::kMean) {
      weight = scalar{1} / static_cast<scalar>(ids.offsets[at + 1] - ids.offsets[at]);
    }
    // Apart, each place has a gradient of its own; pooled, each sample.
    const int64_t index = pooling == Pooling::kNone ? place : sample;
    result.terms[k] = {gradients.values + index * gradients.stride, weight, first_sample + sample};
  }
  return result;
}

template <typename scalar>
void sum_rows(const RowTerms<scalar>& terms, int64_t width, const TakeSums<scalar>& take) {
  at::parallel_for(0, terms.size(), kRowsPerRun, [&](int64_t begin, int64_t end) {
    // Per task and not per row: rows have no more than kMaxSubtrees sums under way.
    std::vector<scalar> sums(static_cast<size_t>(kRowsPerRun * width));
    std::vector<scalar> scratch(static_cast<size_t>(kMaxSubtrees * width));
    for (int64_t first = begin; first < end; first += kRowsPerRun) {
      const int64_t count = std::min(kRowsPerRun, end - first);
      const auto at = static_cast<size_t>(first);
      sum_up_tree(terms.terms, std::span(terms.first).subspan(at, static_cast<size_t>(count) + 1),
                  0, width, sums.data(), scratch.data());
      take(first, count, sums.data());
    }
  });
}

template <typename scalar>
void sum_subtrees(const RowTerms<scalar>& terms, mesh::Range asked, mesh::Range columns,
                  std::span<const int64_t> subtrees, scalar* out) {
  std::vector<scalar> scratch(static_cast<size_t>(kMaxSubtrees * columns.size));
  sum_up_tree(terms.terms, first_of_sums(terms, asked, subtrees), columns.offset, columns.size, out,
              scratch.data());
}

int64_t count_sums(const OwnIds& own, mesh::Range asked) {
  int64_t count = 0;
  for (int64_t i = asked.offset; i < asked.offset + asked.size; ++i) {
    count += std::popcount(own.subtrees[static_cast<size_t>(i)]);
  }
  return count;
}

#define TRIREME_ROW_GRADIENTS(scalar)                                                \
  template RowTerms<scalar> terms_of_own(const OwnIds&, const TableIds&, Pooling,    \
                                         const OutputGradients<scalar>&, int64_t);   \
  template void sum_rows(const RowTerms<scalar>&, int64_t, const TakeSums<scalar>&); \
  template void sum_subtrees(const RowTerms<scalar>&, mesh::Range, mesh::Range,      \
                             std::span<const int64_t>, scalar*);
TRIREME_ROW_GRADIENTS(float)
TRIREME_ROW_GRADIENTS(double)
#undef TRIREME_ROW_GRADIENTS

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

}  // namespace trireme::parallel
