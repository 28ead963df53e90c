#include "trireme/spmd/splits.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/annotated_modules.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

TEST(Splits, BecomePlacesOfAGrid) {
  harness::run_ranks(4, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"context", 1}, {"tensor", 2}});
    const Grid grid(mesh);
    const auto shown = [&](const Splits& splits) {
      return to_string(grid, splits.on(grid, {6, 4, 5}, "x"));
    };
    EXPECT_EQ(shown(replicated()), "[data: replicated, tensor: replicated]");
    EXPECT_EQ(shown(split(0, "data").split(-1, "tensor")),
              "[data: sharded(0), tensor: sharded(2)]");
    EXPECT_EQ(shown(partial("data").split(1, "context")), "[data: partial, tensor: replicated]");
    const Places cut = split(0, "tensor", {0, 1, 6}).on(grid, {6}, "x");
    EXPECT_EQ(local_sizes(grid, cut, {6})[0], mesh.coordinate("tensor") == 0 ? 1 : 5);
    EXPECT_EQ(split(0, "tensor", {0, 3, 6}).on(grid, {6}, "x")[1].cuts, nullptr);
    for (const Splits& splits :
         {replicated(), partial("data"), split(-1, "tensor"), split(0, "tensor", {0, 1, 6}),
          split(0, "data").split(0, "tensor")})
      EXPECT_EQ(splits.layout({6, 4}, grid.axes(), "x"),
                layout_of(grid, splits.on(grid, {6, 4}, "x"), {6, 4}));
  });
}

TEST(Splits, WhatDoesNotFitIsRefused) {
  harness::run_ranks(4, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    const Grid grid(mesh);
    const auto error = [&](const Splits& splits) {
      const std::string found = error_of([&] { splits.on(grid, {6, 4}, "input \"x\""); });
      EXPECT_EQ(error_of([&] { splits.layout({6, 4}, grid.axes(), "input \"x\""); }), found);
      return found;
    };
    EXPECT_NE(error(split(0, "oars")).find("oars"), std::string::npos);
    EXPECT_EQ(error(split(2, "data")),
              "input \"x\" is split in dimension 2 on \"data\", but it has 2 dimensions; expected "
              "one from -2 to 1");
    EXPECT_NE(error(split(0, "data").split(1, "data")).find("twice on the axis \"data\""),
              std::string::npos);
    EXPECT_NE(error(split(0, "data", {0, 5}))
                  .find("expected 3 numbers that rise from 0 to its "
                        "length, 6"),
              std::string::npos);
    EXPECT_NE(error(split(0, "data", {0, 2, 6}).split(0, "tensor")).find("leave out the cuts"),
              std::string::npos);
  });
}

TEST(Splits, BlocksOfAnyLengthsTileATensor) {
  harness::run_ranks(4, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    const Grid grid(mesh);
    const int d = mesh.coordinate("data"), t = mesh.coordinate("tensor");
    const auto tiled = [&](at::IntArrayRef sizes, const Splits& splits) {
      return tile(grid, at::zeros(sizes), splits, std::string("x")).front();
    };
    const TiledTensor uneven = tiled({d == 0 ? 3 : 0, 2}, split(0, "data"));
    EXPECT_EQ(uneven.sizes, (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(*uneven.places[0].cuts, (std::vector<int64_t>{0, 3, 3}));
    const TiledTensor even = tiled({2, 3 - t}, split(1, "tensor"));
    EXPECT_EQ(even.sizes, (std::vector<int64_t>{2, 5}));
    EXPECT_EQ(even.places[1].cuts, nullptr);
    const TiledTensor nested = tiled({d + t == 0 ? 2 : 1}, split(0, "data").split(0, "tensor"));
    EXPECT_EQ(nested.sizes, (std::vector<int64_t>{5}));
    const auto error = [&](at::IntArrayRef sizes, const Splits& splits) {
      return error_of([&] { tiled(sizes, splits); });
    };
    // Every rank has the error, also those whose neighbours agree.
    EXPECT_NE(error({3 + world.rank() / 3}, replicated()).find("x does not tile: its dimension 0"),
              std::string::npos);
    EXPECT_NE(error({2, 3 + d}, split(0, "data")).find("x does not tile: its dimension 1"),
              std::string::npos);
    EXPECT_NE(error({1 + d}, split(0, "data").split(0, "tensor")).find("x does not tile: several"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                const at::Tensor block = world.rank() == 1 ? at::Tensor() : at::zeros({2});
                tile(grid, block, split(0, "data"), std::string("x"));
              }).find("x has failed on rank 1"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace trireme::spmd
