#include "trireme/train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace trireme::train {

AdamW::AdamW(NamedTensors parameters, const OptimizerConfig& config)
    : parameters_(std::move(parameters)),
      config_(config),
      groups_{{config.weight_decay, {}}, {0.0, {}}},
      num_steps_(at::zeros({}, at::kFloat)) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].second;
    const auto options = parameter.options().requires_grad(false);
    exp_avg_.push_back(at::zeros(parameter.sizes(), options));
    exp_avg_sq_.push_back(at::zeros(parameter.sizes(), options));
    groups_[parameter.dim() >= 2 ? 0 : 1].parameters.push_back(i);
  }
}

void AdamW::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  num_steps_ += 1;
  for (const Group& group : groups_) {
    std::vector<at::Tensor> weights, gradients, exp_avg, exp_avg_sq;
    for (size_t i : group.parameters) {
      const at::Tensor& parameter = parameters_[i].second;
      if (!parameter.grad().defined()) continue;
      weights.push_back(parameter);
      gradients.push_back(parameter.grad());
      exp_avg.push_back(exp_avg_[i]);
      exp_avg_sq.push_back(exp_avg_sq_[i]);
    }
    if (weights.empty()) continue;
    const std::vector<at::Tensor> steps(weights.size(), num_steps_);
    at::_fused_adamw_(weights, gradients, exp_avg, exp_avg_sq, {}, steps, learning_rate,
                      config_.beta1, config_.beta2, group.weight_decay, config_.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

NamedTensors AdamW::state() const {
  NamedTensors state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    state.emplace_back("exp_avg." + parameters_[i].first, exp_avg_[i]);
    state.emplace_back("exp_avg_sq." + parameters_[i].first, exp_avg_sq_[i]);
  }
  return state;
}

int64_t AdamW::num_steps() const { return static_cast<int64_t>(num_steps_.item<float>()); }

void AdamW::set_num_steps(int64_t num_steps) { num_steps_.fill_(static_cast<float>(num_steps)); }

}  // namespace trireme::train
