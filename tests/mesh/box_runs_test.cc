#include "trireme/mesh/box_runs.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme::mesh {
namespace {

// The indices in the whole tensor of a box's elements, counted dimension by dimension.
std::vector<int64_t> indices(const Box& box, const std::vector<int64_t>& shape) {
  std::vector<int64_t> found = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> longer;
    for (const int64_t index : found) {
      for (int64_t i = 0; i < box.size[d]; ++i) {
        longer.push_back(index * shape[d] + box.offset[d] + i);
      }
    }
    found = std::move(longer);
  }
  return found;
}

struct Case {
  Box box;
  std::vector<int64_t> shape;
  size_t num_runs;  // of the whole box
};

TEST(BoxRuns, GiveEveryElementItsIndexInTheFewestRuns) {
  for (const Case& c :
       {Case{{{0}, {7}}, {7}, 1}, Case{{{3}, {2}}, {7}, 1}, Case{{{0, 0}, {3, 4}}, {3, 4}, 1},
        Case{{{1, 0}, {2, 4}}, {3, 4}, 1}, Case{{{0, 1}, {3, 2}}, {3, 4}, 3},
        Case{{{1, 0, 0}, {2, 3, 4}}, {5, 3, 4}, 1}, Case{{{1, 1, 0}, {2, 2, 4}}, {5, 3, 4}, 2},
        Case{{{1, 1, 3}, {4, 2, 1}}, {5, 3, 4}, 8}, Case{{{0, 2}, {3, 0}}, {3, 4}, 0}}) {
    const BoxRuns runs(c.box, c.shape);
    const std::vector<int64_t> expected = indices(c.box, c.shape);
    const auto numel = std::ssize(expected);
    for (int64_t begin = 0; begin <= numel; ++begin) {
      for (int64_t end = begin; end <= numel; ++end) {
        std::vector<int64_t> found;
        size_t num_runs = 0;
        runs.visit(begin, end, [&](int64_t first, int64_t index, int64_t count) {
          ++num_runs;
          EXPECT_EQ(first, begin + std::ssize(found));
          for (int64_t i = 0; i < count; ++i) found.push_back(index + i);
        });
        EXPECT_EQ(found, std::vector(expected.begin() + begin, expected.begin() + end));
        if (end - begin == numel) {
          EXPECT_EQ(num_runs, c.num_runs);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::mesh
