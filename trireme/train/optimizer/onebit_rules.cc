#include "trireme/train/optimizer/onebit_rules.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/optimizer/elementwise.h"
#include "trireme/train/optimizer/sign_schedule.h"

namespace trireme::train {
namespace {

// Every operation rounds once, as in LionRule: bits do not depend on how a tensor is cut.

double bias(double beta, int64_t updates) {
  return 1 - std::pow(beta, static_cast<double>(updates));
}

// momentum / (sqrt(variance) + epsilon), biases corrected; 0 where the variance is.
at::Tensor adam_direction(const at::Tensor& momentum, double momentum_bias,
                          const at::Tensor& variance, double variance_bias, double epsilon) {
  const at::Tensor size = at::div(variance, variance_bias).sqrt_().add_(epsilon);
  return at::div(momentum, size.mul_(momentum_bias)).masked_fill_(variance.eq(0), 0);
}

void descend(const at::Tensor& weights, const at::Tensor& direction, double rate, double decay) {
  if (decay != 0) weights.mul_(1 - rate * decay);
  weights.sub_(at::mul(direction, rate));
}

// One number for a parameter, or for each expert of a stack.
StateSpec number_of(const parallel::Shard& shard, const std::string& name) {
  StateSpec state = state_like(shard, name, /*is_positive=*/true);
  const bool has_experts = is_expert_stack(shard.layout) || is_expert_bias(shard.layout);
  for (size_t dim = has_experts ? 1 : 0; dim < state.local_shape.size(); ++dim) {
    state.local_shape[dim] = std::min<int64_t>(state.local_shape[dim], 1);
    state.layout = with_length_one(state.layout, static_cast<int64_t>(dim));
  }
  return state;
}

constexpr double kRatioDecay = 0.9;
constexpr double kSmallestFactor = 0.5, kLargestFactor = 4;
constexpr double kLargestChange = 0.1;  // of a factor in one update

enum LambState { kExpAvg, kExpAvgSq, kFreshSq, kMeanRatio, kLastFactor };

}  // namespace

std::vector<StateSpec> OneBitAdamRule::state_of(const parallel::Shard& shard) const {
  return adamw_.state_of(shard);
}

void OneBitAdamRule::update(std::span<const UpdateItem> items, double learning_rate,
                            int64_t step) const {
  if (step <= options_.freeze_step) return adamw_.update(items, learning_rate, step);
  const double momentum_bias = bias(options_.beta1, step);
  const double variance_bias = bias(options_.beta2, options_.freeze_step);
  update_elementwise(items, [&](PieceBatch& batch) {
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      const at::Tensor& momentum = batch.gradients[i];
      batch.state[0][i].copy_(momentum);
      descend(batch.weights[i],
              adam_direction(momentum, momentum_bias, batch.state[1][i], variance_bias,
                             options_.epsilon),
              learning_rate * batch.rate_scale, batch.weight_decay);
    }
  });
}

std::vector<StateSpec> OneBitLambRule::state_of(const parallel::Shard& shard) const {
  std::vector<StateSpec> states = lamb_.state_of(shard);
  states.push_back(state_like(shard, "fresh_sq", /*is_positive=*/true));
  states.push_back(number_of(shard, "mean_ratio"));
  states.push_back(number_of(shard, "last_factor"));
  return states;
}

void OneBitLambRule::update(std::span<const UpdateItem> items, double learning_rate,
                            int64_t step) const {
  const c10::NoGradGuard no_grad;
  for (const UpdateItem& item : items) {
    if (item.weights.numel() == 0) continue;
    const double rate = learning_rate * item.rate_scale;
    if (step > options_.freeze_step) {
      update_frozen(item, rate, step);
      continue;
    }
    const at::Tensor ratio = lamb_.update_one(item, rate, step);
    item.state[kMeanRatio].mul_(kRatioDecay).add_(ratio.mul(1 - kRatioDecay));
  }
}

void OneBitLambRule::update_frozen(const UpdateItem& item, double rate, int64_t step) const {
  const auto& [beta1, beta2, epsilon, freeze_step] = options_;
  const at::Tensor weights = item.weights.detach();
  const at::Tensor momentum = converted_gradient(item);
  const at::Tensor& variance = item.state[kExpAvgSq];
  const at::Tensor& fresh = item.state[kFreshSq];
  const at::Tensor& factor = item.state[kLastFactor];
  const at::Tensor is_first = factor.eq(0);
  fresh.copy_(at::where(is_first, variance, fresh));
  factor.masked_fill_(is_first, 1);
  const at::Tensor gradient =
      at::sub(momentum, at::mul(item.state[kExpAvg], beta1)).div_(1 - beta1);
  fresh.mul_(beta2).add_(gradient.square_().mul_(1 - beta2));
  item.state[kExpAvg].copy_(momentum);

  const double variance_bias = bias(beta2, freeze_step);
  at::Tensor direction =
      adam_direction(momentum, bias(beta1, step), variance, variance_bias, epsilon);
  const at::Tensor frozen_size = at::div(variance, variance_bias).sqrt_().add_(epsilon);
  const at::Tensor fresh_size = at::div(fresh, bias(beta2, step)).sqrt_().add_(epsilon);
  at::Tensor next = frozen_size.div_(fresh_size).max();
  if (item.weight_decay != 0) {
    const at::Tensor adam_norm = l2_norm(direction);
    direction = direction.add_(at::mul(weights, item.weight_decay));
    // Of nothing there is no share: the ratio is NaN, and the whole is taken.
    const at::Tensor share = at::div(adam_norm, l2_norm(direction)).nan_to_num_(1).clamp_max_(1);
    next = next.mul(share).sub_(share).add_(1);
  }
  next = next.clamp_(kSmallestFactor, kLargestFactor).to(factor.scalar_type());
  next = at::minimum(at::maximum(next, at::mul(factor, 1 - kLargestChange)),
                     at::mul(factor, 1 + kLargestChange));
  factor.copy_(next);
  const at::Tensor scale =
      at::mul(item.state[kMeanRatio], rate / bias(kRatioDecay, freeze_step)).mul_(factor);
  weights.sub_(direction.mul_(scale.to(direction.scalar_type())));
}

std::vector<StateSpec> ZeroOneAdamRule::state_of(const parallel::Shard& shard) const {
  return adamw_.state_of(shard);
}

void ZeroOneAdamRule::update(std::span<const UpdateItem> items, double learning_rate,
                             int64_t step) const {
  const VarianceUpdate variance = variance_update(step, variance_updates_);
  if (variance.number == step) return adamw_.update(items, learning_rate, step);
  const double momentum_bias = bias(beta1_, step), variance_bias = bias(beta2_, variance.number);
  update_elementwise(items, [&](PieceBatch& batch) {
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      const at::Tensor& gradient = batch.gradients[i];
      const at::Tensor& exp_avg = batch.state[0][i];
      const at::Tensor& exp_avg_sq = batch.state[1][i];
      exp_avg.mul_(beta1_).add_(at::mul(gradient, 1 - beta1_));
      if (variance.is_due) {
        exp_avg_sq.mul_(beta2_).add_(at::mul(gradient, gradient).mul_(1 - beta2_));
      }
      descend(batch.weights[i],
              adam_direction(exp_avg, momentum_bias, exp_avg_sq, variance_bias, epsilon_),
              learning_rate * batch.rate_scale, batch.weight_decay);
    }
  });
}

}  // namespace trireme::train
