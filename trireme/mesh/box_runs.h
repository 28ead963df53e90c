// Where the elements of a box are in the whole tensor, flattened. Random numbers that are drawn by
// that index are the same in every layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/mesh/layout.h"

namespace trireme::mesh {

// A box is a sequence of runs: elements that follow each other in the box and in the whole tensor.
class BoxRuns {
 public:
  // Throws: InternalError when the box has other dimensions than the whole tensor
  BoxRuns(const Box& box, std::span<const int64_t> whole_shape);

  // Calls visit(first, index, count) for the runs within elements [begin, end) of the box: `count`
  // elements from `first` of the box on are those from `index` of the whole tensor on.
  template <typename Visit>
  void visit(int64_t begin, int64_t end, const Visit& visit) const {
    for (int64_t first = begin; first < end;) {
      const int64_t in_run = first % length_;
      const int64_t count = std::min(length_ - in_run, end - first);
      visit(first, start_of(first / length_) + in_run, count);
      first += count;
    }
  }

 private:
  int64_t start_of(int64_t run) const;

  struct Dim {
    int64_t size;
    int64_t stride;
  };
  std::vector<Dim> outer_;  // over the runs
  int64_t start_ = 0;       // of the first
  int64_t length_ = 1;
};

}  // namespace trireme::mesh
