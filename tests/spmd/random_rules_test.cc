// Random numbers and updates of parameters.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/functional.h>
#include <torch/optim/adamw.h>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

// What each layout of `axes` draws, from the state {5, 0}.
void expect_drawn(const std::vector<mesh::Axis>& axes, uint64_t draws,
                  const std::function<at::Tensor(const at::Tensor&)>& draw,
                  const at::Tensor& expected) {
  int size = 1;
  for (const mesh::Axis& axis : axes) size *= axis.size;
  harness::run_ranks(size, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, axes);
    const auto grid = std::make_shared<Grid>(mesh);
    harness::Draw places(draws);
    for (int i = 0; i < 8; ++i) {
      grid->random() = {.seed = 5, .stream = 0};
      const Places drawn = drawn_places(places, *grid, expected.sizes());
      const at::Tensor x = place_whole(grid, at::zeros_like(expected), drawn);
      EXPECT_TRUE(at::equal(whole_of(draw(x)), expected)) << to_string(*grid, drawn);
    }
  });
}

at::Tensor on_one_rank(at::IntArrayRef sizes,
                       const std::function<at::Tensor(const at::Tensor&)>& draw) {
  at::Tensor drawn;
  harness::run_ranks(1, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 1}});
    const auto grid = std::make_shared<Grid>(mesh);
    grid->random() = {.seed = 5, .stream = 0};
    drawn = whole_of(draw(place_whole(grid, at::zeros(sizes, at::kDouble), {})));
  });
  return drawn;
}

TEST(RandomRules, EveryLayoutDrawsTheSameNumbers) {
  namespace F = torch::nn::functional;
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> draws = {
      [](const at::Tensor& x) { return at::dropout(x + 1, 0.3, true); },
      [](const at::Tensor& x) {
        return at::feature_alpha_dropout(x + 1, 0.0, false) + x.clone().uniform_(-1, 2);
      },
      [](const at::Tensor& x) { return at::randn_like(x); },
      [](const at::Tensor& x) { return at::rand_like(x) + at::empty_like(x).exponential_(2); },
      [](const at::Tensor& x) { return (x + 0.4).bernoulli(); },
      [](const at::Tensor& x) { return x.clone().random_(2, 9); },
      [](const at::Tensor& x) { return std::get<0>(at::native_dropout(x + 1, 0.5, true)); },
      // [B, T, D] with a split T, drawn where B and T are one
      [](const at::Tensor& x) {
        return at::dropout(x.view({12, 5}) + 1, 0.5, true).view({3, 4, 5});
      },
  };
  for (size_t i = 0; i < draws.size(); ++i) {
    SCOPED_TRACE(i);
    const at::Tensor expected = on_one_rank({3, 4, 5}, draws[i]);
    EXPECT_GT(expected.std().item<double>(), 0.1);
    expect_drawn({{"tensor", 2}}, 1, draws[i], expected);
    expect_drawn({{"tensor", 3}}, 2, draws[i], expected);
    expect_drawn({{"data", 2}, {"tensor", 2}}, 3, draws[i], expected);
  }
}

TEST(RandomRules, StreamsDifferAndAGeneratorIsRefused) {
  harness::run_ranks(1, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 1}});
    const auto grid = std::make_shared<Grid>(mesh);
    const at::Tensor x = place_whole(grid, at::zeros({1000}), {});
    const RandomState before = grid->random();
    const at::Tensor a = whole_of(at::rand_like(x)), b = whole_of(at::rand_like(x));
    EXPECT_FALSE(at::equal(a, b));
    EXPECT_NEAR(a.mean().item<double>(), 0.5, 0.05);
    grid->random() = before;
    EXPECT_TRUE(at::equal(whole_of(at::rand_like(x)), a));
    EXPECT_NEAR(whole_of(at::randn_like(x)).std().item<double>(), 1, 0.1);
    const auto mask = whole_of(at::dropout(x + 1, 0.25, true)).eq(0);
    EXPECT_NEAR(mask.to(at::kDouble).mean().item<double>(), 0.25, 0.05);
    const std::string refused =
        error_of([&] { x.clone().uniform_(0, 1, at::detail::createCPUGenerator()); });
    EXPECT_NE(refused.find("takes a generator"), std::string::npos) << refused;
  });
}

// Three steps on parameters of which each has another split.
template <typename Step>
Tensors updated(const GridPtr& grid, const Step& step) {
  Tensors parameters;
  int split = 0;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{5, 3}, {4}, {2, 3}}) {
    at::Tensor p = values(sizes, 0.3 + static_cast<double>(parameters.size()));
    if (grid) p = place_whole(grid, p, {split++ < 2 ? Place::sharded(0) : Place()});
    parameters.push_back(p.requires_grad_());
  }
  step(parameters);
  return parameters;
}

template <typename Step>
void expect_same_updates(const Step& step) {
  const Tensors expected = updated(nullptr, step);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const Tensors found = updated(std::make_shared<Grid>(mesh), step);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_LE((whole_of(found[i].detach()) - expected[i]).abs().max().item<double>(), 1e-12);
    }
  });
}

void backward(const Tensors& parameters) {
  for (const at::Tensor& p : parameters) p.mutable_grad() = at::Tensor();
  at::Tensor total = parameters[0].mm(parameters[2].t()).pow(2).sum();
  total = total + parameters[1].pow(3).sum() + parameters[2].sin().sum();
  total.backward();
}

TEST(OptimizerRules, TorchsAdamWUpdatesBlocks) {
  expect_same_updates([](const Tensors& parameters) {
    torch::optim::AdamW optimizer(parameters,
                                  torch::optim::AdamWOptions(0.1).weight_decay(0.2).amsgrad(true));
    for (int i = 0; i < 3; ++i) {
      backward(parameters);
      optimizer.step();
    }
  });
}

TEST(OptimizerRules, FusedAndForeachOperators) {
  expect_same_updates([](const Tensors& parameters) {
    backward(parameters);
    const at::NoGradGuard no_gradient;
    Tensors gradients, first, second, steps;
    for (const at::Tensor& p : parameters) {
      gradients.push_back(p.grad());
      first.push_back(at::zeros_like(p));
      second.push_back(at::zeros_like(p));
      steps.push_back(at::ones({}, at::kFloat));
    }
    at::_fused_adamw_(parameters, gradients, first, second, {}, steps, 0.1, 0.9, 0.99, 0.1, 1e-8,
                      false, false);
    at::_foreach_mul_(first, 0.5);
    at::_foreach_addcmul_(second, gradients, gradients, 0.3);
    at::_foreach_add_(second, 0.1);
    at::_foreach_addcdiv_(parameters, first, second, -0.2);
    const Tensors norms = at::_foreach_norm(gradients, 2);
    at::_foreach_add_(parameters, at::_foreach_mul(gradients, 0.01));
    at::_fused_sgd_(parameters, gradients, {}, 0.1, 0, 0.05, 0, false, false, true);
    for (const at::Tensor& p : parameters) at::Tensor(p).mul_(norms[1]);
  });
}

}  // namespace
}  // namespace trireme::spmd
