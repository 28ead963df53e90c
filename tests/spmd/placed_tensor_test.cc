#include "trireme/spmd/placed_tensor.h"

#include <ATen/TensorOperators.h>
#include <torch/nn.h>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;
namespace nn = torch::nn;

TEST(PlacedTensor, HasTheSizesOfTheWholeAndTheMemoryOfABlock) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor whole = values({5, 3}, 0.1);
    const at::Tensor x = place_whole(grid, whole, {Place::sharded(0)});
    EXPECT_EQ(x.sizes(), whole.sizes());
    EXPECT_FALSE(x.has_storage());
    EXPECT_EQ(placed(x)->local.size(0), world.rank() == 0 ? 3 : 2);
    EXPECT_TRUE(placed(x.detach())->local.is_alias_of(placed(x)->local));
    EXPECT_EQ(placed(whole), nullptr);
    EXPECT_TRUE(at::equal(whole_of(x), whole));
    EXPECT_NE(error_of([&] {
                place_block(grid, whole, {Place::sharded(0)}, {5, 3});
              }).find("a block of [5, 3]"),
              std::string::npos);
  });
}

TEST(PlacedTensor, WhatCannotBeSplitIsRefusedOnEveryRank) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor x = place_whole(grid, values({4, 4}, 0.1), {Place::sharded(0)});
    const std::string unknown = error_of([&] { at::linalg_inv(x); });
    EXPECT_NE(unknown.find("no rule says how to split aten::"), std::string::npos) << unknown;
    EXPECT_NE(unknown.find("[tensor: sharded(0)]"), std::string::npos) << unknown;
    EXPECT_EQ(unknown.find('\n'), std::string::npos);
    const std::string item = error_of([&] { x.select(1, 0).sum().item<double>(); });
    EXPECT_NE(item.find("item() on a tensor placed [tensor: partial]"), std::string::npos) << item;
    // A view shares the memory that would have to change its split.
    at::Tensor sum = x.sum(at::IntArrayRef{0});
    const at::Tensor view = sum.view({2, 2});
    EXPECT_NE(error_of([&] { sum.relu_(); }).find("in place"), std::string::npos);
  });
}

// Each parameter as `places` has it by name, the others replicated.
template <typename Module>
void place_parameters(Module& module, const GridPtr& grid,
                      const std::map<std::string, Place>& places) {
  for (auto& parameter : module->named_parameters()) {
    const auto found = places.find(parameter.key());
    const Place place = found == places.end() ? Place() : found->second;
    parameter.value().set_data(place_whole(grid, parameter.value().detach(), {place}));
  }
}

TEST(PlacedTensor, ModulesOfTorchRunOnThem) {
  const auto make = [] {
    nn::Sequential net(nn::Linear(6, 10), nn::GELU(), nn::Linear(10, 6),
                       nn::LayerNorm(nn::LayerNormOptions({6})));
    net->to(at::kDouble);
    double phase = 0;
    const at::NoGradGuard no_gradient;
    for (at::Tensor& parameter : net->parameters())
      parameter.copy_(values(parameter.sizes(), phase += 0.3));
    return net;
  };
  const at::Tensor x = values({4, 3, 6}, 0.2), weight = values({4, 3, 6}, 0.8);
  nn::Sequential oracle = make();
  (oracle->forward(x) * weight).sum().backward();
  const std::map<std::string, Place> by_columns = {{"0.weight", Place::sharded(0)},
                                                   {"0.bias", Place::sharded(0)},
                                                   {"2.weight", Place::sharded(1)}};
  for (const int size : {1, 2, 3}) {
    for (const auto& parameters : {std::map<std::string, Place>{}, by_columns}) {
      for (const Place& input : {Place::replicated(), Place::sharded(0), Place::sharded(1)}) {
        harness::run_ranks(size, [&](comm::Communicator& world) {
          const mesh::DeviceMesh mesh(world, {{"tensor", size}});
          const auto grid = std::make_shared<Grid>(mesh);
          nn::Sequential net = make();
          place_parameters(net, grid, parameters);
          (net->forward(place_whole(grid, x, {input})) * weight).sum().backward();
          for (const auto& parameter : net->named_parameters()) {
            const at::Tensor expected = oracle->named_parameters()[parameter.key()].grad();
            const at::Tensor found = whole_of(parameter.value().grad());
            EXPECT_LE((found - expected).abs().max().item<double>(), 1e-12) << parameter.key();
          }
        });
      }
    }
  }
}

TEST(Dispatch, HasRulesForWhatModulesReach) {
  const std::vector<std::string> names = names_of_rules();
  EXPECT_GE(names.size(), 130u);
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

}  // namespace
}  // namespace trireme::spmd
