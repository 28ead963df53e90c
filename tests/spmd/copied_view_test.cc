#include "trireme/spmd/copied_view.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/spmd/redistribute.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

void on_two_ranks(const std::function<void(const GridPtr&)>& function) {
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    function(std::make_shared<Grid>(mesh));
  });
}

void expect_same(const at::Tensor& found, const at::Tensor& expected, double tolerance = 1e-12) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_LE((whole_of(found) - expected).abs().max().item<double>(), tolerance);
}

TEST(CopiedView, IsCountedWhileItLives) {
  const at::Tensor base = at::zeros({4}), other = at::zeros({4});
  EXPECT_FALSE(has_copied_views(base));
  {
    const CopiedView view(base);
    EXPECT_TRUE(has_copied_views(base.narrow(0, 1, 2)));
    EXPECT_FALSE(has_copied_views(other));
    EXPECT_TRUE(view.has_base());
  }
  EXPECT_FALSE(has_copied_views(base));
  auto lost = std::make_unique<CopiedView>(at::zeros({4}));
  EXPECT_FALSE(lost->has_base());
}

TEST(CopiedView, WritesToViewsOfTheSameMemoryReachTheBase) {
  on_two_ranks([](const GridPtr& grid) {
    const at::NoGradGuard no_gradient;
    at::Tensor whole = values({4, 6}, 0.1);
    const at::Tensor x = place_whole(grid, whole, {Place::sharded(0)});
    x.view({4, 2, 3}).mul_(2);
    x.select(1, 2).add_(1);
    x.t().slice(0, 0, 2).zero_();
    whole.view({4, 2, 3}).mul_(2);
    whole.select(1, 2).add_(1);
    whole.t().slice(0, 0, 2).zero_();
    expect_same(x, whole);
  });
}

TEST(CopiedView, WritesThatWouldNotArriveAreRefused) {
  on_two_ranks([](const GridPtr& grid) {
    const at::NoGradGuard no_gradient;
    at::Tensor x = place_whole(grid, values({3, 4}, 0.1), {Place::sharded(0)});
    at::Tensor view = x.view({2, 6});  // 3 rows in two parts: gathered
    const std::string to_view = error_of([&] { view.add_(1); });
    EXPECT_NE(to_view.find("writes a view whose block was copied"), std::string::npos) << to_view;
    EXPECT_EQ(to_view.find('\n'), std::string::npos);
    const std::string to_part = error_of([&] { view.select(0, 1).add_(1); });
    EXPECT_NE(to_part.find("writes a view whose block was copied"), std::string::npos) << to_part;
    const std::string to_base = error_of([&] { x.add_(1); });
    EXPECT_NE(to_base.find("of which a view was copied"), std::string::npos) << to_base;
    view = at::Tensor();
    x.add_(1);
    expect_same(x, values({3, 4}, 0.1) + 1);
  });
}

TEST(CopiedView, AutogradFollowsAWriteToAViewOfTheWhole) {
  const at::Tensor whole = values({4, 3}, 0.2), weight = values({2, 6}, 0.7);
  const auto gradient = [&](const at::Tensor& leaf) {
    const at::Tensor y = (leaf * 2).view({2, 6});
    at::Tensor(y).relu_();
    return torch::autograd::grad({(y * weight).sum()}, {leaf})[0];
  };
  at::Tensor leaf = whole.clone().requires_grad_();
  const at::Tensor expected = gradient(leaf);
  on_two_ranks([&](const GridPtr& grid) {
    expect_same(gradient(place_whole(grid, whole, {Place::sharded(0)}).requires_grad_()), expected);
    const at::Tensor part = place_whole(grid, whole, {Place::sharded(0)}).requires_grad_();
    const std::string refused = error_of([&] {
      at::Tensor y = part * 2;
      y.select(1, 0).mul_(3);
      torch::autograd::grad({y.sum()}, {part});
    });
    EXPECT_NE(refused.find("write in place to a part of a tensor"), std::string::npos) << refused;
    EXPECT_EQ(refused.find('\n'), std::string::npos);
  });
}

TEST(PlacedStrides, AreThoseOfTheWholeOnEveryRank) {
  on_two_ranks([](const GridPtr& grid) {
    // One rank's block is [5, 1], whose own strides say nothing about the order of dimensions.
    const at::Tensor x = place_whole(grid, values({5, 3}, 0.1), {Place::sharded(1)});
    EXPECT_EQ(x.t().strides(), at::IntArrayRef({1, 3}));
    EXPECT_EQ(x.t().exp().strides(), at::IntArrayRef({1, 3}));
    EXPECT_EQ(x.slice(1, 0, 2).strides(), at::IntArrayRef({3, 1}));
    EXPECT_EQ(x.unsqueeze(1).strides(), at::IntArrayRef({3, 3, 1}));
    EXPECT_EQ(x.unsqueeze(1).expand({5, 2, 3}).strides(), at::IntArrayRef({3, 0, 1}));
    EXPECT_EQ(x.select(0, 1).strides(), at::IntArrayRef({1}));
    const at::Tensor strided = place_whole(grid, values({3, 5}, 0.3).t(), {Place::sharded(0)});
    EXPECT_EQ(strided.strides(), at::IntArrayRef({1, 5}));
    expect_same(strided + x, values({3, 5}, 0.3).t() + values({5, 3}, 0.1));
    expect_same(strided.reshape({15}), values({3, 5}, 0.3).t().reshape({15}));
  });
}

TEST(PlacedStrides, ChannelsLastStays) {
  const at::Tensor images = values({2, 4, 3, 3}, 0.1), kernel = values({4, 4, 3, 3}, 0.4);
  on_two_ranks([&](const GridPtr& grid) {
    for (const Place& place : {Place::sharded(0), Place::sharded(1), Place::replicated()}) {
      const at::Tensor x =
          place_whole(grid, images, {place}).contiguous(at::MemoryFormat::ChannelsLast);
      EXPECT_TRUE(x.is_contiguous(at::MemoryFormat::ChannelsLast));
      expect_same(x, images);
      const at::Tensor y = at::conv2d(x.relu(), kernel, {}, 1, 1);
      EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
      expect_same(y, at::conv2d(images.relu(), kernel, {}, 1, 1), 1e-11);
      EXPECT_TRUE(y.contiguous().is_contiguous());
    }
  });
}

TEST(PlacedModes, DoubleBackwardIsThatOfTheWhole) {
  const at::Tensor input = values({4, 3}, 0.2), weights = values({5, 3}, 0.6);
  const auto second = [](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = at::layer_norm(at::linear(x, w).tanh(), {5}).pow(2).sum();
    const at::Tensor first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {w})[0];
  };
  const at::Tensor expected =
      second(input.clone().requires_grad_(), weights.clone().requires_grad_());
  on_two_ranks([&](const GridPtr& grid) {
    for (const Place& x : {Place::sharded(0), Place::sharded(1)}) {
      for (const Place& w : {Place::sharded(0), Place::sharded(1), Place::replicated()}) {
        expect_same(second(place_whole(grid, input, {x}).requires_grad_(),
                           place_whole(grid, weights, {w}).requires_grad_()),
                    expected, 1e-10);
      }
    }
  });
}

TEST(PlacedModes, AutocastRunsProductsInBf16) {
  const at::Tensor input = values({4, 8}, 0.2).to(at::kFloat);
  const at::Tensor weights = values({6, 8}, 0.6).to(at::kFloat);
  on_two_ranks([&](const GridPtr& grid) {
    const at::Tensor w = place_whole(grid, weights, {Place::sharded(0)}).requires_grad_();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor y = at::linear(place_whole(grid, input, {Place::sharded(0)}), w);
    const at::Tensor expected = at::linear(input, weights);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_LE((whole_of(y.detach()) - expected).abs().max().item<double>(), 0.02);
    y.to(at::kFloat).sum().backward();
    EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
    EXPECT_LE((whole_of(w.grad()) - input.sum(0)).abs().max().item<double>(), 0.05);
  });
}

}  // namespace
}  // namespace trireme::spmd
