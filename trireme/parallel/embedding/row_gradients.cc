#include "trireme/parallel/embedding/row_gradients.h"

#include <algorithm>
#include <bit>

#include <ATen/Parallel.h>

#include "trireme/parallel/embedding/row_memory.h"

namespace trireme::parallel::inline internal {
namespace {

constexpr int64_t kRowsPerRun = 64;

// The runs of terms within one subtree each: [begin, end) for each of them.
template <typename scalar, typename Take>
void for_each_subtree(std::span<const Term<scalar>> terms, std::span<const int64_t> subtrees,
                      const Take& take) {
  auto next = subtrees.begin();  // the first subtree after the current one
  for (size_t begin = 0; begin < terms.size();) {
    next = std::upper_bound(next, subtrees.end(), terms[begin].sample);
    size_t end = begin + 1;
    while (end < terms.size() && (next == subtrees.end() || terms[end].sample < *next)) ++end;
    take(terms.subspan(begin, end - begin));
    begin = end;
  }
}

template <typename scalar>
void fetch_ahead(const RowTerms<scalar>& terms, int64_t row, int64_t column, int64_t width) {
  const auto next = static_cast<size_t>(terms.first[static_cast<size_t>(row)] + kRowsAhead);
  if (next >= terms.terms.size()) return;
  fetch_row(terms.terms[next].row + column, 0, width * static_cast<int64_t>(sizeof(scalar)));
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
    const int64_t index = pooling == Pooling::kNone ? place : sample;
    result.terms[k] = {gradients.values + index * gradients.stride, weight, first_sample + sample};
  }
  return result;
}

template <typename scalar>
void sum_rows(const RowTerms<scalar>& terms, int64_t width, const TakeSums<scalar>& take) {
  at::parallel_for(0, terms.size(), kRowsPerRun, [&](int64_t begin, int64_t end) {
    std::vector<scalar> sums(static_cast<size_t>(kRowsPerRun * width));
    std::vector<scalar> scratch(static_cast<size_t>(kMaxSubtrees * width));
    for (int64_t first = begin; first < end; first += kRowsPerRun) {
      const int64_t count = std::min(kRowsPerRun, end - first);
      for (int64_t i = 0; i < count; ++i) {
        fetch_ahead(terms, first + i, 0, width);
        sum_up_tree(terms.of(first + i), 0, width, sums.data() + i * width, scratch.data());
      }
      take(first, count, sums.data());
    }
  });
}

template <typename scalar>
void sum_subtrees(const RowTerms<scalar>& terms, mesh::Range asked, mesh::Range columns,
                  std::span<const int64_t> subtrees, scalar* out) {
  std::vector<scalar> scratch(static_cast<size_t>(kMaxSubtrees * columns.size));
  for (int64_t i = asked.offset; i < asked.offset + asked.size; ++i) {
    fetch_ahead(terms, i, columns.offset, columns.size);
    for_each_subtree(terms.of(i), subtrees, [&](std::span<const Term<scalar>> run) {
      sum_up_tree(run, columns.offset, columns.size, out, scratch.data());
      out += columns.size;
    });
  }
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

}  // namespace trireme::parallel::inline internal
