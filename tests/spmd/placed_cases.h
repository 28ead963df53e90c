// Operators on placed tensors beside the same on whole ones: the values and every gradient.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/harness/draw.h"
#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd::spmd_test {

using Tensors = std::vector<at::Tensor>;

struct OperatorCase {
  std::string name;
  std::vector<std::vector<int64_t>> sizes;  // of the arguments
  std::function<at::Tensor(const Tensors&)> call;
  bool is_positive = false;  // the arguments' values
};

// Values of fp64 that differ everywhere and have no ties.
at::Tensor values(at::IntArrayRef sizes, double phase, bool positive = false);

// Places for a tensor of `sizes`, drawn for each axis.
Places drawn_places(harness::Draw& draw, const Grid& grid, at::IntArrayRef sizes);

// Runs the case on the grid `count` times with drawn places and expects what one rank computes,
// within `tolerance` of the largest value.
void expect_whole_values(const OperatorCase& each, const GridPtr& grid, uint64_t seed, int count,
                         double tolerance = 1e-10);

// The same on 1 to 4 ranks and on 2 x 2.
void expect_on_all_grids(const OperatorCase& each, double tolerance = 1e-10);

// The case's name as a test's.
std::string test_name(const OperatorCase& each);

// What a function throws; "" for nothing.
std::string error_of(const std::function<void()>& function);

}  // namespace trireme::spmd::spmd_test
