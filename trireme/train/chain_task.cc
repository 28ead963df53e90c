#include "trireme/train/chain_task.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

ChainTask::ChainTask() : model_([this] { return make_chain(); }) {}
// What a copy's make_chain() builds may differ, because its keys may.
ChainTask::ChainTask(const ChainTask& other)
    : Task(other), model_([this] { return make_chain(); }) {}

at::Tensor ChainTask::prepare(const at::Tensor& input, at::ScalarType dtype,
                              const StageInput& /*batch*/) const {
  return input.is_floating_point() ? input.to(dtype) : input;
}

at::Tensor ChainTask::metric_states(const at::Tensor& /*output*/,
                                    const StageInput& /*batch*/) const {
  TRIREME_ASSERT(metrics().empty(), "a task with metrics that does not compute their states");
  return {};
}

ChainGoal ChainTask::goal() const {
  ChainGoal goal{.input = input_name(), .targets = target_names()};
  goal.prepare = [this](const at::Tensor& input, at::ScalarType dtype, const StageInput& batch) {
    return prepare(input, dtype, batch);
  };
  goal.loss_sum = [this](const at::Tensor& output, const StageInput& batch) {
    return loss_sum(output, batch);
  };
  if (!metrics().empty()) {
    goal.metric_states = [this](const at::Tensor& output, const StageInput& batch) {
      return metric_states(output, batch);
    };
  }
  return goal;
}

double ChainTask::sample_bytes() const {
  const dataset::Source& source = training();
  double bytes = 0;
  for (int64_t index = 0;; ++index) {
    try {
      for (const auto& [name, tensor] : source.get(index, std::nullopt)) {
        bytes += static_cast<double>(tensor.nbytes());
      }
      return bytes;
    } catch (const ConfigError&) {
      // A run may skip bad samples; all others are alike.
      if (index + 1 >= std::min<int64_t>(source.size(), 100)) throw;
    }
  }
}

}  // namespace trireme::train
