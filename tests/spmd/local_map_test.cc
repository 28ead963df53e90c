#include "trireme/spmd/local_map.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/annotated_modules.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/base/error.h"
#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

// Runs `call` on placed tensors and on whole ones.
template <typename Mapped, typename Whole>
void expect_equal(comm::Communicator& world, const std::vector<mesh::Axis>& axes,
                  const Mapped& mapped, const Whole& whole) {
  const mesh::DeviceMesh mesh(world, axes);
  const auto grid = std::make_shared<Grid>(mesh);
  const at::Tensor a = values({6, 4}, 0.1), b = values({4, 5}, 0.6);
  const at::Tensor a0 = a.clone().requires_grad_(), b0 = b.clone().requires_grad_();
  const at::Tensor expected = whole(a0, b0), weight = values(expected.sizes(), 0.3);
  (expected * weight).sum().backward();
  const at::Tensor a1 = place_whole(grid, a, {}).requires_grad_();
  const at::Tensor b1 = b.clone().requires_grad_();  // not placed
  const at::Tensor found = mapped(a1, b1);
  EXPECT_TRUE(at::allclose(whole_of(found), expected, 0, 1e-12));
  (found * weight).sum().backward();
  EXPECT_TRUE(at::allclose(whole_of(a1.grad()), a0.grad(), 0, 1e-12));
  EXPECT_EQ(placed(b1.grad()), nullptr);
  EXPECT_TRUE(at::allclose(b1.grad(), b0.grad(), 0, 1e-12));
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return a.mm(b).tanh(); }

TEST(LocalMap, IsTheWholeFunctionWithItsGradients) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const std::vector<mesh::Axis> axes = {{"tensor", size}};
      expect_equal(world, axes,
                   local_map(product, {split(0, "tensor"), replicated()}, {split(0, "tensor")}),
                   product);
      expect_equal(world, axes,
                   local_map(product, {replicated(), split(1, "tensor")}, {split(-1, "tensor")}),
                   product);
      expect_equal(world, axes, local_map(product, {replicated(), replicated()}, {replicated()}),
                   product);
      const auto sum = [](const at::Tensor& a, const at::Tensor& b) { return a.mm(b); };
      expect_equal(world, axes,
                   local_map(sum, {split(1, "tensor"), split(0, "tensor")}, {partial("tensor")}),
                   sum);
    });
  }
  harness::run_ranks(4, [&](comm::Communicator& world) {
    expect_equal(world, {{"data", 2}, {"tensor", 2}},
                 local_map(product, {split(0, "data"), split(1, "tensor")},
                           {split(0, "data").split(1, "tensor")}),
                 product);
  });
}

TEST(LocalMap, GradientsAreAsAnnotated) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    // Each rank adds a half: the gradient of b is that of one rank, twice.
    const auto half = [](const at::Tensor& a, const at::Tensor& b) { return a.mm(b) / 2; };
    const auto mapped = local_map(half, {replicated(), replicated()}, {partial("tensor")},
                                  {partial("tensor"), partial("tensor")});
    expect_equal(world, {{"tensor", 2}}, mapped,
                 [](const at::Tensor& a, const at::Tensor& b) { return a.mm(b); });
  });
}

TEST(LocalMap, GivesSeveralResultsOfAnyLengths) {
  harness::run_ranks(3, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 3}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor x = place_whole(grid, values({7, 2}, 0.1), {Place::sharded(0)});
    const auto positive = local_map(
        [](const at::Tensor& block) {
          const at::Tensor rows = at::nonzero(block.select(1, 0) > 0).view({-1});
          return std::tuple(block.index_select(0, rows), at::full({1}, rows.numel(), at::kLong));
        },
        {split(0, "tensor")}, {split(0, "tensor"), split(0, "tensor")});
    const auto [rows, counts] = positive(x);
    const at::Tensor whole = values({7, 2}, 0.1);
    const at::Tensor expected = whole.index_select(0, at::nonzero(whole.select(1, 0) > 0).view(-1));
    EXPECT_TRUE(at::equal(whole_of(rows), expected));
    EXPECT_EQ(whole_of(counts).sum().item<int64_t>(), expected.size(0));
  });
}

TEST(LocalMap, WhatDoesNotTileIsRefusedOnEveryRank) {
  harness::run_ranks(3, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 3}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor x = place_whole(grid, values({6, 4}, 0.1), {Place::sharded(0)});
    const auto error = [&](auto function, const Splits& out) {
      return error_of([&] { local_map(function, {split(0, "tensor")}, {out})(x); });
    };
    const int rank = world.rank();
    const std::string wide =
        error([&](const at::Tensor& block) { return block.narrow(1, 0, 2 + rank / 2); },
              split(0, "tensor"));
    EXPECT_NE(wide.find("result 0 of local_map() does not tile: its dimension 1 has 3 elements on "
                        "rank 2"),
              std::string::npos)
        << wide;
    EXPECT_EQ(wide.find('\n'), std::string::npos);
    const std::string whole = error(
        [&](const at::Tensor& block) { return block.narrow(0, 0, 1 + rank / 2); }, replicated());
    EXPECT_NE(whole.find("does not tile"), std::string::npos) << whole;
    const std::string failed = error(
        [&](const at::Tensor& block) {
          TRIREME_CHECK(rank != 1, "no such row");
          return block * 1;
        },
        split(0, "tensor"));
    EXPECT_NE(failed.find(rank == 1 ? "no such row" : "has failed on rank 1"), std::string::npos)
        << failed;
    EXPECT_NE(error_of([&] {
                local_map(product, {replicated(), replicated()}, {replicated()})(
                    values({2, 2}, 0.1), values({2, 2}, 0.2));
              }).find("no argument is placed"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace trireme::spmd
