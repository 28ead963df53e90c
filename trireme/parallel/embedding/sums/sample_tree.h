// The fixed order in which the gradients of one row are summed over the samples of all ranks.
//
// Samples are numbered over all ranks: rank 0's first, then rank 1's. They are the leaves of one
// binary tree, in which sample s and sample s ^ 1 are neighbours, then pairs, then pairs of pairs.
// A row's gradient is the sum up this tree of the samples that use the row; a sample that does not
// use it adds nothing, not even a zero. A sample that uses the row several times first adds its
// terms in their order. The tree depends only on the samples' numbers, so the sum has the same bits
// however samples and rows are shared out.
//
// A rank may sum whatever lies in one subtree of its samples. Its range falls into at most
// 2 log2(samples) subtrees, and into one if it is a power of two long and begins at a multiple of
// that. So a rank sends between one vector and that many for an id, and never more than it has
// samples with the id.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::parallel {

// The most subtrees that a range has. Samples are numbered below 2^32.
inline constexpr int64_t kMaxSubtrees = 64;
inline constexpr int64_t kMaxSamples = int64_t{1} << 32;

// The beginnings of the largest subtrees that cover the samples [begin, end) and no other.
std::vector<int64_t> subtrees_of(int64_t begin, int64_t end);

// The height of the lowest node above both samples, which differ.
inline int height_over(int64_t a, int64_t b) {
  return std::bit_width(static_cast<uint64_t>(a) ^ static_cast<uint64_t>(b));
}

// weight * row: what sample `sample` adds to a row's gradient. A subtree's sum counts as
// a term of any sample in it.
template <typename scalar>
struct Term {
  const scalar* row;
  scalar weight;
  int64_t sample;
};

// The sums of the terms [first[i], first[i + 1]) for each i. There is at least one i, and its terms
// ascend by sample. Only the columns [column, column + width) are summed.
// Shapes: first [n + 1], sums [n, width]; scratch: [kMaxSubtrees * width], contents arbitrary
void sum_up_tree(std::span<const Term<float>> terms, std::span<const int64_t> first, int64_t column,
                 int64_t width, float* sums, float* scratch);
void sum_up_tree(std::span<const Term<double>> terms, std::span<const int64_t> first,
                 int64_t column, int64_t width, double* sums, double* scratch);

}  // namespace trireme::parallel
