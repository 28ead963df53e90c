#include "trireme/spmd/redistribute.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

// Values that add up exactly, so that the order of a sum is no matter.
at::Tensor whole_numbers(at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t length : sizes) count *= length;
  return at::arange(1, count + 1, at::kDouble).reshape(sizes);
}

// This rank's block; of a partial sum every rank of the axis has another share.
at::Tensor block_of(const Grid& grid, const at::Tensor& whole, const Places& places) {
  at::Tensor block = whole;
  for (int64_t dim = 0; dim < whole.dim(); ++dim) {
    const mesh::Range range = local_range(grid, places, static_cast<int>(dim), whole.size(dim));
    block = block.narrow(dim, range.offset, range.size);
  }
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (!places[axis].is_partial()) continue;
    const int last = grid.size(axis) - 1;
    block = grid.coordinate(axis) == last ? block * (1 - last) : block;
  }
  return block;
}

void expect_moves(const GridPtr& grid, at::IntArrayRef sizes, uint64_t seed, int count) {
  const at::Tensor whole = whole_numbers(sizes);
  harness::Draw draw(seed);
  for (int i = 0; i < count; ++i) {
    const Places from = drawn_places(draw, *grid, sizes), to = drawn_places(draw, *grid, sizes);
    const at::Tensor moved = redistribute(*grid, block_of(*grid, whole, from), sizes, from, to);
    EXPECT_EQ(moved.sizes(), at::IntArrayRef(local_sizes(*grid, to, sizes)));
    const at::Tensor found = redistribute(*grid, moved, sizes, to, Places());
    EXPECT_TRUE(at::equal(found, whole)) << to_string(*grid, from) << " " << to_string(*grid, to);
    for (int axis = 0; axis < grid->num_axes(); ++axis) {
      if (to[axis].is_partial()) return;  // shares may be any
    }
    EXPECT_TRUE(at::equal(moved, block_of(*grid, whole, to))) << to_string(*grid, to);
  }
}

TEST(Redistribute, KeepsTheWholeTensorWhateverThePlaces) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const mesh::DeviceMesh mesh(world, {{"tensor", size}});
      const auto grid = std::make_shared<Grid>(mesh);
      for (uint64_t seed = 0; seed < 20; ++seed) expect_moves(grid, {5, 3}, seed, 10);
    });
  }
  harness::run_ranks(6, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 3}, {"tensor", 2}});
    const auto grid = std::make_shared<Grid>(mesh);
    for (uint64_t seed = 0; seed < 40; ++seed) expect_moves(grid, {7, 4, 3}, seed, 10);
  });
}

TEST(Redistribute, CountsItsBytes) {
  const Place whole = Place::replicated(), rows = Place::sharded(0), sum = Place::partial();
  EXPECT_EQ(bytes_moved(rows, rows, 4, 800), 0);
  EXPECT_EQ(bytes_moved(rows, whole, 4, 800), 600);
  EXPECT_EQ(bytes_moved(sum, whole, 4, 800), 1200);
  EXPECT_EQ(bytes_moved(sum, rows, 4, 800), 600);
  EXPECT_EQ(bytes_moved(rows, Place::sharded(1), 4, 800), 150);
  EXPECT_EQ(bytes_moved(whole, rows, 4, 800), 0);
  EXPECT_EQ(bytes_moved(rows, sum, 4, 800), 0);
}

}  // namespace
}  // namespace trireme::spmd
