// Tensors of all kinds of shapes and dtypes, cut over the ranks of a world.
#pragma once

#include <vector>

#include "tests/checkpoint/saved_tensors.h"

namespace trireme::checkpoint {

inline std::vector<Global> mixed_tensors(int world_size, uint64_t seed = 0) {
  const auto layout = [&](const std::vector<int64_t>& shape, int dim) {
    return mesh::Layout(shape, {{"data", world_size}}, {mesh::Placement::sharded(dim)});
  };
  const auto whole = [&](const std::vector<int64_t>& shape) {
    return mesh::Layout(shape, {{"data", world_size}});
  };
  return {{"matrix", random_tensor("matrix", {7, 5}, at::kFloat, seed), layout({7, 5}, 0)},
          {"wide", random_tensor("wide", {2, 11, 3}, at::kBFloat16, seed), layout({2, 11, 3}, 1)},
          {"counts", random_tensor("counts", {5}, at::kLong, seed), layout({5}, 0)},
          {"scalar", random_tensor("scalar", {}, at::kDouble, seed), whole({})},
          {"empty", random_tensor("empty", {0, 4}, at::kFloat, seed), layout({0, 4}, 1)},
          {"half", random_tensor("half", {3}, at::kHalf, seed), whole({3})},
          {"flags", random_tensor("flags", {9}, at::kBool, seed), layout({9}, 0)}};
}

}  // namespace trireme::checkpoint
