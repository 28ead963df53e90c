#include "trireme/train/resumption.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train::inline internal {

namespace fs = std::filesystem;

Resumption::Resumption(const RunConfig& config, comm::Communicator& world,
                       checkpoint::OnWait on_wait)
    : config_(config), world_(world), on_wait_(std::move(on_wait)) {
  identify_data();
  find();
}

void Resumption::identify_data() {
  const auto look = [this](const checkpoint::Peers&) {
    const Task& task = *config_.task;
    data_ = task.identify(task.training());
    if (task.validation() != nullptr) validation_ = task.identify(*task.validation());
  };
  checkpoint::run_or_throw(world_, look, on_wait_);
  const std::string name = config_.task->data_name();
  require_same_data(data_, name, world_);
  if (validation_.is_known()) require_same_data(validation_, name + " (validation)", world_);
}

void Resumption::find() {
  const auto look = [this](const checkpoint::Peers&) {
    ResumePoint point = find_resume_point(config_, data_, validation_, damaged_);
    notes_ = std::move(point.notes);
    return point.checkpoint.string();
  };
  checkpoint_ = checkpoint::from_root(world_, look, on_wait_);
}

RunState Resumption::load(TrainingState& state) {
  while (!checkpoint_.empty()) {
    try {
      return state.load(checkpoint_);
    } catch (const CheckpointError&) {
      const auto look = [this](const checkpoint::Peers&) {
        const auto problems = checkpoint::verify(checkpoint_).problems;
        return problems.empty() ? std::string() : problems.front();
      };
      const std::string problem = checkpoint::from_root(world_, look, on_wait_);
      if (problem.empty()) throw;  // it is whole, and does not fit
      damaged_[checkpoint_] = problem;
    }
    find();
  }
  return state.begin();
}

}  // namespace trireme::train::inline internal
