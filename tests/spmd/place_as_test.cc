#include "trireme/spmd/place_as.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

TEST(PlaceAs, IsTheSameTensorElsewhereWithItsGradient) {
  harness::run_ranks(3, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 3}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor whole = values({5, 4}, 0.1), weight = values({5, 4}, 0.7);
    for (const Place& from : {Place::replicated(), Place::sharded(0), Place::sharded(1)}) {
      for (const Place& to : {Place::replicated(), Place::sharded(0), Place::sharded(1)}) {
        const at::Tensor x = place_whole(grid, whole, {from}).requires_grad_();
        const at::Tensor y = place_as(grid, x, {to}, "test");
        EXPECT_EQ(placed(y)->places, Places{to});
        EXPECT_TRUE(at::equal(whole_of(y), whole));
        (y * weight).sum().backward();
        EXPECT_TRUE(at::equal(whole_of(x.grad()), weight));
      }
    }
  });
}

TEST(PlaceAs, AWholeTensorHasAWholeGradient) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor weight = values({5, 4}, 0.7);
    at::Tensor x = values({5, 4}, 0.1).requires_grad_();
    (place_as(grid, x, {Place::sharded(0)}, "test") * weight).sum().backward();
    EXPECT_EQ(placed(x.grad()), nullptr);
    EXPECT_TRUE(at::equal(x.grad(), weight));
  });
}

TEST(LeaveGrid, GivesTheWholeTensorAndTakesAWholeGradient) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor whole = values({5, 4}, 0.1), weight = values({5, 4}, 0.7);
    const at::Tensor x = place_whole(grid, whole, {Place::sharded(0)}).requires_grad_();
    const at::Tensor y = leave_grid(x * 2, "test");
    EXPECT_EQ(placed(y), nullptr);
    EXPECT_TRUE(at::equal(y, whole * 2));
    (y * weight).sum().backward();
    EXPECT_TRUE(at::equal(whole_of(x.grad()), weight * 2));
    EXPECT_TRUE(leave_grid(weight, "test").is_same(weight));
  });
}

}  // namespace
}  // namespace trireme::spmd
