// Bugs that users of PyTorch's DTensor reported, rebuilt here. The names are those of the reports.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional.h>

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

void on_ranks(int size, const std::function<void(const GridPtr&)>& function) {
  harness::run_ranks(size, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", size}});
    function(std::make_shared<Grid>(mesh));
  });
}

void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_LE((whole_of(found.detach()) - expected).abs().max().item<double>(), 1e-12);
}

// pytorch#147724 (select), #152249 (masked_fill_, in the backward of norm), #167917 (detach_),
// #147578 (amax), torchtitan#3645 (topk): operators without a strategy
TEST(PublicBugs, OperatorsThatWereMissing) {
  const at::Tensor whole = values({4, 6}, 0.1);
  on_ranks(2, [&](const GridPtr& grid) {
    for (const Place& place : {Place::sharded(0), Place::sharded(1)}) {
      const at::Tensor x = place_whole(grid, whole, {place});
      expect_close(x.select(0, 1), whole.select(0, 1));
      expect_close(x.amax({1}), whole.amax({1}));
      expect_close(std::get<0>(x.topk(2, 1)), std::get<0>(whole.topk(2, 1)));
      {
        const c10::InferenceMode inference;
        at::Tensor y = x * 2;
        expect_close(y.detach_(), whole * 2);
      }
      const auto gradient = [](at::Tensor leaf) {
        leaf = leaf.detach().requires_grad_();
        return torch::autograd::grad({at::norm(leaf, 2, {0}, false).sum()}, {leaf})[0];
      };
      expect_close(gradient(x), gradient(whole));
    }
  });
}

// pytorch#124990: the error of another operator, or of the shapes, hid that there is no strategy
TEST(PublicBugs, WhatHasNoRuleIsNamedAtOnce) {
  on_ranks(2, [](const GridPtr& grid) {
    const at::Tensor x = place_whole(grid, values({4, 2}, 0.1), {Place::sharded(0)});
    for (const auto& function : std::vector<std::function<void()>>{
             [&] { at::nonzero(x); }, [&] { at::masked_select(x, x > 0); },
             [&] { at::linalg_inv(x.slice(0, 0, 2)); }}) {
      const std::string error = error_of(function);
      EXPECT_NE(error.find("no rule says how to split aten::"), std::string::npos) << error;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    }
  });
}

// pytorch#172932: a partial sum that was taken apart and put together had another gradient
TEST(PublicBugs, GradientsThroughPartialSums) {
  const at::Tensor whole = values({2}, 0.4);
  on_ranks(2, [&](const GridPtr& grid) {
    const at::Tensor x = place_whole(grid, whole, {Place::partial()}).requires_grad_();
    const at::Tensor y = x * 3;
    ASSERT_TRUE(placed(y)->places[0].is_partial());
    expect_close(torch::autograd::grad({(y * y).sum()}, {x})[0], 18 * whole);
  });
}

// pytorch#165962, #159856: maxima and norms were taken of the shares of a sum. #149768: a number
// was added on every rank.
TEST(PublicBugs, PartialSumsAreSummedBeforeWhatIsNotLinear) {
  on_ranks(2, [](const GridPtr& grid) {
    const at::Tensor whole = at::tensor({1.0, -3.0, 2.0});
    const at::Tensor share =
        grid->coordinate(0) == 0 ? at::tensor({5.0, -1.0, 0.0}) : at::tensor({-4.0, -2.0, 2.0});
    const at::Tensor x = place_block(grid, share, {Place::partial()}, {3});
    expect_close(x, whole);
    expect_close(x.max(), whole.max());
    expect_close(x.amin({0}), whole.amin({0}));
    expect_close(at::linalg_vector_norm(x), at::linalg_vector_norm(whole));
    expect_close(x + 1e-6, whole + 1e-6);
    expect_close(x.abs(), whole.abs());
  });
}

// pytorch#191926: the gradient of a convolution's input, split along its width, had another split
TEST(PublicBugs, ConvolutionOfSplitPixels) {
  const at::Tensor images = values({2, 3, 8, 8}, 0.1), kernel = values({4, 3, 4, 4}, 0.5);
  const auto gradients = [](const at::Tensor& x, const at::Tensor& w) {
    return torch::autograd::grad({at::conv2d(x, w, {}, 4).pow(2).sum()}, {x, w});
  };
  const Tensors expected =
      gradients(images.clone().requires_grad_(), kernel.clone().requires_grad_());
  on_ranks(2, [&](const GridPtr& grid) {
    const Tensors found = gradients(place_whole(grid, images, {Place::sharded(3)}).requires_grad_(),
                                    place_whole(grid, kernel, {Place()}).requires_grad_());
    EXPECT_LE((whole_of(found[0]) - expected[0]).abs().max().item<double>(), 1e-10);
    EXPECT_LE((whole_of(found[1]) - expected[1]).abs().max().item<double>(), 1e-10);
  });
}

// pytorch#143372, #179502: views of uneven splits, and of splits that a view cuts
TEST(PublicBugs, ViewsOfUnevenSplits) {
  const at::Tensor six = values({6, 256}, 0.1), twelve = values({12, 8}, 0.2);
  on_ranks(4, [&](const GridPtr& grid) {
    expect_close(place_whole(grid, six, {Place::sharded(0)}).view(-1), six.view(-1));
    expect_close(place_whole(grid, twelve, {Place::sharded(1)}).view({-1, 6}),
                 twelve.view({-1, 6}));
  });
}

// pytorch#147570, #139735: a write to a view did not reach the tensor, silently
TEST(PublicBugs, WritesToViewsArriveOrAreRefused) {
  on_ranks(2, [](const GridPtr& grid) {
    const at::NoGradGuard no_gradient;
    at::Tensor whole = values({9, 8}, 0.1);
    const at::Tensor x = place_whole(grid, whole, {Place::sharded(0)});
    const std::string error = error_of([&] { x.view({-1, 3}).mul_(2); });
    EXPECT_NE(error.find("view"), std::string::npos);
    if (error.empty()) whole.view({-1, 3}).mul_(2);
    expect_close(x, whole);
    x.view({9, 4, 2}).mul_(2);
    expect_close(x, whole * 2);
    const std::string slice = error_of([&] { x.slice(0, 0, 2).zero_(); });
    EXPECT_NE(slice, "");
    expect_close(x, whole * 2);
  });
}

// pytorch#167106, #172102: a product with a matrix that every rank has gathered what was split
TEST(PublicBugs, ProductsOfSplitBatchesAndTokensMoveNothing) {
  const at::Tensor cube = values({4, 6, 3}, 0.1), matrix = values({3, 5}, 0.4);
  const at::Tensor bias = values({5}, 0.7), other = values({4, 3, 2}, 0.9);
  harness::run_ranks(4, [&](comm::Communicator& inner) {
    harness::CountingCommunicator world(inner);
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    const auto grid = std::make_shared<Grid>(mesh);
    const Places split = {Place::sharded(0), Place::sharded(1)};
    const at::Tensor x = place_whole(grid, cube, split).requires_grad_();
    const at::Tensor w = place_whole(grid, matrix, {}).requires_grad_();
    const auto moved = [&] {
      return world.ledger().of("data").calls + world.ledger().of("tensor").calls;
    };
    world.ledger().clear();
    const at::Tensor product = x.matmul(w);
    const at::Tensor layer = at::linear(x, w.t(), bias).relu();
    EXPECT_EQ(moved(), 0);
    EXPECT_EQ(placed(product)->places, split);
    EXPECT_EQ(placed(layer)->places, split);
    const at::Tensor ones = at::ones_like(product);
    const auto gradients = torch::autograd::grad({product}, {x, w}, {ones});
    EXPECT_EQ(moved(), 0);  // the matrix' gradient is a partial sum
    EXPECT_EQ(placed(gradients[0])->places, split);
    expect_close(product, cube.matmul(matrix));
    expect_close(layer, at::linear(cube, matrix.t(), bias).relu());
    expect_close(gradients[0], at::ones({4, 6, 5}, at::kDouble).matmul(matrix.t()));
    EXPECT_LE((whole_of(gradients[1]) - cube.sum(at::IntArrayRef{0, 1}).unsqueeze(1).expand({3, 5}))
                  .abs()
                  .max()
                  .item<double>(),
              1e-12);
    world.ledger().clear();
    const at::Tensor batches = place_whole(grid, cube, {Place::sharded(0)}).requires_grad_();
    const at::Tensor products = batches.bmm(place_whole(grid, other, {Place::sharded(0)}));
    torch::autograd::grad({products}, {batches}, {at::ones_like(products)});
    EXPECT_EQ(moved(), 0);
  });
}

}  // namespace
}  // namespace trireme::spmd
