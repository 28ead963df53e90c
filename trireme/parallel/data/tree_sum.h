// Sums in one fixed binary tree, whatever number of ranks holds the terms. It makes gradients
// independent of how many ranks share a batch (train.reproducible). comm's collectives sum in rank
// order, which differs between four ranks and two pairs.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

// Adds terms that come one by one: neighbours first, then pairs of pairs. Holds log2 of their
// number. T: a number, or a tensor, which is changed in place and must own its memory.
template <typename T>
class TreeSum {
 public:
  void push(T term) {
    int64_t num_terms = 1;
    while (!sums_.empty() && sums_.back().num_terms == num_terms) {
      term = add_to_last(std::move(term));
      num_terms *= 2;
    }
    sums_.push_back({std::move(term), num_terms});
  }
  // Returns the sum of all terms and empties the tree. There must be at least one term.
  T take() {
    T sum = std::move(sums_.back().value);
    sums_.pop_back();
    while (!sums_.empty()) sum = add_to_last(std::move(sum));
    return sum;
  }
  bool empty() const { return sums_.empty(); }

 private:
  struct Sum {
    T value;
    int64_t num_terms;  // a power of two; each is smaller than the one before
  };
  T add_to_last(T term) {
    T sum = std::move(sums_.back().value);
    sums_.pop_back();
    sum += term;
    return sum;
  }
  std::vector<Sum> sums_;
};

// The sum over ranks of this rank's part [cuts[rank], cuts[rank + 1]) of `flat`. Ranks 0 and 1 make
// a pair, 2 and 3, and so on. `flat` does not change.
// Shapes:     flat [n] -> [cuts[rank + 1] - cuts[rank]]
// Comm:       (p-1)/p * n elements
// Collective: every rank
at::Tensor tree_reduce_scatter(comm::Communicator& group, const at::Tensor& flat,
                               std::span<const int64_t> cuts);

// The same sum of all of `flat`, on every rank, in place.
// Comm:       2(p-1)/p * n elements
// Collective: every rank
void tree_all_reduce(comm::Communicator& group, const at::Tensor& flat);

// [parts + 1] boundaries of `parts` parts, as even as possible (see mesh::split_range).
std::vector<int64_t> even_cuts(int64_t length, int parts);

// Views of `flat`, cut at `cuts`.
std::vector<at::Tensor> view_parts(const at::Tensor& flat, std::span<const int64_t> cuts);

}  // namespace trireme::parallel
