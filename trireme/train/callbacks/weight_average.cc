#include "trireme/train/callbacks/weight_average.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trireme/train/callbacks/callback.h"

namespace trireme::train {
namespace {

constexpr const char* kNumSteps = "num_steps";

}  // namespace

std::unique_ptr<Callback> WeightAverage::clone() const {
  auto copy = std::make_unique<WeightAverage>();
  copy->config_ = config_;
  return copy;
}

namespace {

// Codes of frozen weights are no numbers, and stay as they are.
bool has_average(const parallel::Shard& shard) {
  return c10::isFloatingType(shard.weights.scalar_type());
}

}  // namespace

void WeightAverage::build(const std::vector<parallel::Shard>& shards) {
  averages_.clear();
  for (const parallel::Shard& shard : shards) {
    const auto dtype = c10::promoteTypes(shard.weights.scalar_type(), c10::ScalarType::Float);
    const at::Tensor weights = shard.weights.detach();
    averages_.push_back(
        {.name = shard.name,
         .local = has_average(shard) ? weights.to(dtype, false, /*copy=*/true) : weights,
         .layout = shard.layout,
         .rank = shard.rank});
  }
}

void WeightAverage::on_step(RunView& run) {
  if (run.metrics().skipped) return;
  const bool is_first = num_steps_ == 0;
  if (run.step() <= config_.start) return;
  const auto n = static_cast<double>(num_steps_);
  const double decay = std::min(config_.decay, (1 + n) / (10 + n));
  const at::NoGradGuard no_gradient;
  const std::vector<parallel::Shard>& shards = run.shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    at::Tensor& average = averages_[i].local;
    if (!has_average(shards[i])) continue;
    if (is_first) {
      average.copy_(shards[i].weights);
    } else {
      average.lerp_(shards[i].weights.to(average.scalar_type()), 1 - decay);
    }
  }
  ++num_steps_;
}

void WeightAverage::on_evaluate(RunView& run) {
  if (num_steps_ == 0) return;
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> weights;
  const std::vector<parallel::Shard>& shards = run.shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    weights.push_back(shards[i].weights.detach().clone());
    shards[i].weights.copy_(averages_[i].local);
  }
  run.spread_weights();
  const std::optional<double> loss = run.evaluate();
  for (size_t i = 0; i < shards.size(); ++i) shards[i].weights.copy_(weights[i]);
  run.spread_weights();
  if (loss) run.add_metric("average_validation_loss", *loss);
}

std::string WeightAverage::state() const {
  return write_state({{kNumSteps, static_cast<double>(num_steps_)}});
}

void WeightAverage::restore(const std::string& state) { num_steps_ = steps_in(state); }

int64_t WeightAverage::steps_in(const std::string& state) {
  return count_in(read_state(state, kName, {kNumSteps}), kNumSteps, kName);
}

}  // namespace trireme::train
