#include "trireme/train/chain_task.h"

#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::train {

ChainTask::ChainTask()
    : model_([this] { return make_chain(); }, [this](uint64_t /*seed*/) { return goal(); }) {}
// A copy may have other keys, so its make_chain() may build another chain.
ChainTask::ChainTask(const ChainTask& other)
    : Task(other),
      is_answering_(other.is_answering_),
      model_([this] { return make_chain(); }, [this](uint64_t /*seed*/) { return goal(); }) {}

at::Tensor ChainTask::prepare(const at::Tensor& input, at::ScalarType dtype,
                              const StageInput& /*batch*/) const {
  return input.is_floating_point() ? input.to(dtype) : input;
}

at::Tensor ChainTask::metric_states(const at::Tensor& /*output*/,
                                    const StageInput& /*batch*/) const {
  TRIREME_ASSERT(traits().metrics.empty(),
                 "a task with metrics that does not compute their states");
  return {};
}

ChainGoal ChainTask::goal() const {
  ChainGoal goal{.input = input_name(), .targets = target_names(), .gives_output = is_answering_};
  goal.prepare = [this](const at::Tensor& input, at::ScalarType dtype, const StageInput& batch) {
    return prepare(input, dtype, batch);
  };
  goal.loss_sum = [this](const at::Tensor& output, const StageInput& batch) {
    return loss_sum(output, batch);
  };
  if (!traits().metrics.empty()) {
    goal.metric_states = [this](const at::Tensor& output, const StageInput& batch) {
      return metric_states(output, batch);
    };
  }
  return goal;
}

std::unique_ptr<Predictor> ChainTask::chain_predictor(const PredictRequest& request,
                                                      ChainAnswers answers) const {
  std::unique_ptr<StageModel> stage;
  if (request.has_model) {
    ChainGoal output = goal();
    output.gives_output = true;
    const model::ModelAxes axes;
    stage = model_.make_stage({.config = request.config, .axes = axes, .part = {}}, output);
    request.saved.load(stage->module());
  }
  return make_output_predictor(std::move(stage), std::move(answers));
}

std::unique_ptr<Task> ChainTask::answering_chain() const {
  std::unique_ptr<Task> copy = clone();
  dynamic_cast<ChainTask&>(*copy).is_answering_ = true;
  return copy;
}

}  // namespace trireme::train
