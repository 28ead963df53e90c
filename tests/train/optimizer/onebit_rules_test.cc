#include "trireme/train/optimizer/onebit_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/train/optimizer/runs.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

constexpr int kOneBitSteps = 9;
constexpr int kFreezeStep = 3;

OptimizerConfig one_bit_config(const char* name) {
  return {.name = name, .learning_rate = 1e-2, .freeze_step = kFreezeStep, .variance_updates = 2};
}

// After `steps` updates; what a rule gets after the freeze is taken for the momentum.
std::vector<parallel::Shard> train_for(const OptimizerConfig& config, at::ScalarType dtype,
                                       int steps) {
  std::vector<parallel::Shard> shards = make_shards(dtype);
  Optimizer optimizer(shards, config);
  for (int step = 1; step <= steps; ++step) {
    for (parallel::Shard& shard : shards) shard.gradient = gradient_at(step, shard, dtype);
    optimizer.step(config.learning_rate);
  }
  return shards;
}

void expect_bits_of(const char* plain, const char* name, int steps) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto mine = train_for(one_bit_config(name), dtype, steps);
    const auto others = train_for(one_bit_config(plain), dtype, steps);
    for (size_t i = 0; i < mine.size(); ++i) {
      harness::assert_same_bits(mine[i].weights, others[i].weights, mine[i].name);
    }
  }
}

TEST(OneBitRules, AreTheRulesWithoutSignsUpToTheFreeze) {
  expect_bits_of("adamw", "onebit-adam", kFreezeStep);
  expect_bits_of("lamb", "onebit-lamb", kFreezeStep);
  expect_bits_of("adamw", "zero-one-adam", 2);
}

double decay_of(const parallel::Shard& shard, const OptimizerConfig& config) {
  return shard.layout.shape().size() >= 2 ? config.weight_decay : 0;
}

// One parameter, by the papers' lines, in fp64.
struct OneBitReference {
  at::Tensor w;
  at::Tensor m = at::zeros_like(w);
  at::Tensor v = at::zeros_like(w);

  // m(t) / (1 - beta1^t) / (sqrt(v / correction) + epsilon)
  at::Tensor direction(const OptimizerConfig& c, int step, int variance_updates) const {
    const at::Tensor size = (v / (1 - std::pow(c.beta2, variance_updates))).sqrt() + c.epsilon;
    return m / (1 - std::pow(c.beta1, step)) / size;
  }
  void take(const OptimizerConfig& c, const at::Tensor& g, bool with_variance) {
    m = c.beta1 * m + (1 - c.beta1) * g;
    if (with_variance) v = c.beta2 * v + (1 - c.beta2) * g * g;
  }
};

TEST(OneBitRules, OneBitAdamKeepsTheVarianceAndTakesTheMomentum) {
  const OptimizerConfig config = one_bit_config("onebit-adam");
  const auto trained = train_for(config, at::kDouble, kOneBitSteps);
  const auto start = make_shards(at::kDouble);
  for (size_t i = 0; i < start.size(); ++i) {
    OneBitReference own{start[i].weights.clone()};
    for (int step = 1; step <= kOneBitSteps; ++step) {
      const at::Tensor given = gradient_at(step, start[i], at::kDouble);
      const bool is_plain = step <= kFreezeStep;
      if (is_plain) {
        own.take(config, given, true);
      } else {
        own.m = given;
      }
      const at::Tensor direction = own.direction(config, step, std::min(step, kFreezeStep));
      own.w = own.w * (1 - config.learning_rate * decay_of(start[i], config)) -
              config.learning_rate * direction;
    }
    harness::assert_close(trained[i].weights, own.w, 1e-12, 1e-13, start[i].name);
  }
}

TEST(OneBitRules, ZeroOneAdamUpdatesItsVarianceLessAndLessOften) {
  const OptimizerConfig config = one_bit_config("zero-one-adam");
  const auto trained = train_for(config, at::kDouble, kOneBitSteps);
  const auto start = make_shards(at::kDouble);
  for (size_t i = 0; i < start.size(); ++i) {
    OneBitReference own{start[i].weights.clone()};
    int updates = 0;
    for (int step = 1; step <= kOneBitSteps; ++step) {
      const bool is_due = step <= 3 || step == 5 || step == 7;
      updates += is_due ? 1 : 0;
      own.take(config, gradient_at(step, start[i], at::kDouble), is_due);
      own.w = own.w * (1 - config.learning_rate * decay_of(start[i], config)) -
              config.learning_rate * own.direction(config, step, updates);
    }
    harness::assert_close(trained[i].weights, own.w, 1e-12, 1e-13, start[i].name);
  }
}

double ratio_of(const at::Tensor& a, const at::Tensor& b) {
  const double x = a.norm().item<double>(), y = b.norm().item<double>();
  return x > 0 && y > 0 ? x / y : 1;
}

TEST(OneBitRules, OneBitLambScalesByTheVarianceThatGoesOn) {
  const OptimizerConfig config = one_bit_config("onebit-lamb");
  const auto trained = train_for(config, at::kDouble, kOneBitSteps);
  const auto start = make_shards(at::kDouble);
  for (size_t i = 0; i < start.size(); ++i) {
    // A stack of experts is no expert axis' here, so its norm is over all.
    if (start[i].weights.numel() == 0) continue;
    OneBitReference own{start[i].weights.clone()};
    const double decay = decay_of(start[i], config);
    at::Tensor fresh;
    double mean_ratio = 0, factor = 1;
    for (int step = 1; step <= kOneBitSteps; ++step) {
      const at::Tensor given = gradient_at(step, start[i], at::kDouble);
      if (step <= kFreezeStep) {
        own.take(config, given, true);
        fresh = own.v.clone();
        const at::Tensor update = own.direction(config, step, step) + decay * own.w;
        const double ratio = ratio_of(own.w, update);
        mean_ratio = 0.9 * mean_ratio + 0.1 * ratio;
        own.w = own.w - config.learning_rate * ratio * update;
        continue;
      }
      const at::Tensor g = (given - config.beta1 * own.m) / (1 - config.beta1);
      fresh = config.beta2 * fresh + (1 - config.beta2) * g * g;
      own.m = given;
      const auto size_of = [&](const at::Tensor& variance, int updates) {
        return (variance / (1 - std::pow(config.beta2, updates))).sqrt() + config.epsilon;
      };
      const at::Tensor adam = own.direction(config, step, kFreezeStep);
      const at::Tensor update = adam + decay * own.w;
      double next = (size_of(own.v, kFreezeStep) / size_of(fresh, step)).max().item<double>();
      const double share = std::min(1.0, ratio_of(adam, update));
      if (decay != 0) next = next * share + 1 - share;
      next = std::clamp(std::clamp(next, 0.5, 4.0), 0.9 * factor, 1.1 * factor);
      factor = next;
      const double coefficient = mean_ratio / (1 - std::pow(0.9, kFreezeStep));
      own.w = own.w - config.learning_rate * coefficient * factor * update;
    }
    harness::assert_close(trained[i].weights, own.w, 1e-11, 1e-13, start[i].name);
  }
}

// A sign is never 0, but the parameter has never had a gradient there.
TEST(OneBitRules, ElementsWithoutVarianceStayWhileSignsAreExchanged) {
  for (const char* name : {"onebit-adam", "onebit-lamb"}) {
    OptimizerConfig config = one_bit_config(name);
    config.weight_decay = 0;
    std::vector<parallel::Shard> shards = {
        {.name = "w", .weights = at::ones({2, 4}), .layout = mesh::Layout({2, 4}, {})}};
    Optimizer optimizer(shards, config);
    for (int step = 1; step <= kOneBitSteps; ++step) {
      shards[0].gradient = at::full({2, 4}, 0.5);
      if (step <= kFreezeStep) shards[0].gradient[1].zero_();
      optimizer.step(0.1);
    }
    EXPECT_TRUE(shards[0].weights[1].eq(1).all().item<bool>()) << name;
    EXPECT_TRUE(shards[0].weights[0].lt(1).all().item<bool>()) << name;
  }
}

TEST(OneBitRules, PiecesHaveTheBitsOfTheWhole) {
  OptimizerConfig config = one_bit_config("onebit-adam");
  config.freeze_step = 1;
  expect_same_bits_in_pieces(config);
  config = one_bit_config("zero-one-adam");
  config.variance_updates = 1;
  expect_same_bits_in_pieces(config);
}

TEST(OneBitRules, LambKeepsOneNumberPerParameterForItsRatioAndItsFactor) {
  const std::vector<parallel::Shard> shards = make_shards(at::kFloat);
  const Optimizer optimizer(shards, one_bit_config("onebit-lamb"));
  std::map<std::string, std::vector<int64_t>> sizes;
  for (const checkpoint::Entry& entry : optimizer.state()) {
    sizes[entry.name] = entry.local.sizes().vec();
  }
  EXPECT_EQ(sizes.at("mean_ratio.wide.weight"), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(sizes.at("last_factor.bias"), (std::vector<int64_t>{1}));
  EXPECT_EQ(sizes.at("fresh_sq.wide.weight"), (std::vector<int64_t>{3, 70}));
}

}  // namespace
}  // namespace trireme::train
