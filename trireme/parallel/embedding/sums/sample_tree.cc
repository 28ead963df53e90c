#include "trireme/parallel/embedding/sums/sample_tree.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/machine/multiversion.h"
#include "trireme/parallel/embedding/rows/row_memory.h"

namespace trireme::parallel {
namespace {

template <typename scalar>
TRIREME_INLINE void set_to(const Term<scalar>& term, int64_t column, int64_t width, scalar* sum) {
  const scalar* const row = term.row + column;
  const scalar weight = term.weight;
#pragma GCC ivdep
  for (int64_t d = 0; d < width; ++d) sum[d] = weight * row[d];
}

template <typename scalar>
TRIREME_INLINE void add_to(const Term<scalar>& term, int64_t column, int64_t width, scalar* sum) {
  const scalar* const row = term.row + column;
  const scalar weight = term.weight;
#pragma GCC ivdep
  for (int64_t d = 0; d < width; ++d) sum[d] += weight * row[d];
}

// Keeps a stack of the sums of finished subtrees, each to the right of the one below it and lower
// in the tree than what joins the two. A new sample first joins all that lies below its node. Every
// other sample is the last one below its node, and is added without a place on the stack.
template <typename scalar>
TRIREME_INLINE void sum_body(const Term<scalar>* terms, int64_t count, int64_t column,
                             int64_t width, scalar* sum, scalar* scratch) {
  int heights[kMaxSubtrees + 1];  // of the node over an entry of the stack and the one below it
  int64_t top = 0;
  const auto slot = [&](int64_t i) { return i == 0 ? sum : scratch + (i - 1) * width; };
  const auto join_below = [&](int64_t i) {
    const scalar* const right = slot(i);
    scalar* const left = slot(i - 1);
#pragma GCC ivdep
    for (int64_t d = 0; d < width; ++d) left[d] += right[d];
  };
  set_to(terms[0], column, width, sum);
  for (int64_t i = 1; i < count; ++i) {
    if (terms[i].sample == terms[i - 1].sample) {
      add_to(terms[i], column, width, slot(top));
      continue;
    }
    // The tree is given by the numbers of the samples alone, so every layout adds in the same
    // shape.
    const int height = height_over(terms[i - 1].sample, terms[i].sample);
    for (; top > 0 && heights[top] < height; --top) join_below(top);
    const bool is_last =
        i + 1 == count || (terms[i + 1].sample != terms[i].sample &&
                           height_over(terms[i].sample, terms[i + 1].sample) > height);
    if (is_last) {
      add_to(terms[i], column, width, slot(top));
      continue;
    }
    // kMaxSubtrees bounds the stack: its heights fall from entry to entry.
    heights[++top] = height;
    set_to(terms[i], column, width, slot(top));
  }
  for (; top > 0; --top) join_below(top);
}

template <typename scalar>
TRIREME_INLINE void sums_body(const Term<scalar>* terms, int64_t num_terms, const int64_t* first,
                              int64_t count, int64_t column, int64_t width, scalar* sums,
                              scalar* scratch) {
  for (int64_t i = 0; i < count; ++i) {
    if (first[i] + kRowsAhead < num_terms) {
      fetch_row(terms[first[i] + kRowsAhead].row + column, 0,
                width * static_cast<int64_t>(sizeof(scalar)));
    }
    sum_body(terms + first[i], first[i + 1] - first[i], column, width, sums + i * width, scratch);
  }
}

#define TRIREME_SUM_UP_TREE(scalar)                                                        \
  TRIREME_MULTIVERSION void sum_terms(const Term<scalar>* terms, int64_t num_terms,        \
                                      const int64_t* first, int64_t count, int64_t column, \
                                      int64_t width, scalar* sums, scalar* scratch) {      \
    sums_body(terms, num_terms, first, count, column, width, sums, scratch);               \
  }
TRIREME_SUM_UP_TREE(float)
TRIREME_SUM_UP_TREE(double)
#undef TRIREME_SUM_UP_TREE

}  // namespace

std::vector<int64_t> subtrees_of(int64_t begin, int64_t end) {
  TRIREME_CHECK(begin >= 0 && end <= kMaxSamples, "a batch has ", end,
                " samples over all ranks; at most ", kMaxSamples, " can be numbered");
  std::vector<int64_t> begins;
  while (begin < end) {
    begins.push_back(begin);
    const auto longest = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(end - begin)));
    const int64_t aligned = begin & -begin;  // 0 for sample 0, which any length fits
    begin += aligned == 0 ? longest : std::min(aligned, longest);
  }
  return begins;
}

void sum_up_tree(std::span<const Term<float>> terms, std::span<const int64_t> first, int64_t column,
                 int64_t width, float* sums, float* scratch) {
  sum_terms(terms.data(), std::ssize(terms), first.data(), std::ssize(first) - 1, column, width,
            sums, scratch);
}
void sum_up_tree(std::span<const Term<double>> terms, std::span<const int64_t> first,
                 int64_t column, int64_t width, double* sums, double* scratch) {
  sum_terms(terms.data(), std::ssize(terms), first.data(), std::ssize(first) - 1, column, width,
            sums, scratch);
}

}  // namespace trireme::parallel
