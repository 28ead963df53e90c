#include "trireme/train/state/resumption.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"

namespace trireme::train::inline internal {

namespace fs = std::filesystem;

Resumption::Resumption(const RunConfig& config, comm::Communicator& world, const Places& places,
                       checkpoint::OnWait on_wait)
    : config_(config), world_(world), places_(places), on_wait_(std::move(on_wait)) {
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

const FastPlace* Resumption::place_of(const fs::path& checkpoint) const {
  for (const FastPlace& place : places_.fast()) {
    if (checkpoint.parent_path() == place.root) return &place;
  }
  return nullptr;
}

// The newest complete checkpoint of each fast place; rank 0 can read its manifest.
std::vector<FastCheckpoint> Resumption::find_fast() {
  std::vector<FastCheckpoint> found;
  for (const FastPlace& place : places_.fast()) {
    std::set<int64_t> left_out;
    for (const auto& [folder, problem] : damaged_) {
      if (place_of(folder) != &place) continue;
      left_out.insert(checkpoint::step_of(folder.filename().string()));
      notes_.push_back(concat("DAMAGED: ", problem, "; another checkpoint is used"));
    }
    const auto complete =
        checkpoint::find_complete(place.root, left_out, place.sites, world_, on_wait_);
    notes_.insert(notes_.end(), complete.notes.begin(), complete.notes.end());
    if (!complete.newest) continue;
    checkpoint::bring(complete.newest->folder, {}, place.sites, world_, on_wait_);
    found.push_back(
        {place.name, complete.newest->folder, complete.newest->step, complete.newest->age});
  }
  return found;
}

void Resumption::find() {
  notes_.clear();
  const std::vector<FastCheckpoint> fast = find_fast();
  const auto look = [&](const checkpoint::Peers&) {
    ResumePoint point = find_resume_point(config_, data_, validation_, damaged_, fast);
    std::ranges::move(point.notes, std::back_inserter(notes_));
    return point.checkpoint.string();
  };
  checkpoint_ = checkpoint::from_root(world_, look, on_wait_);
  place_ = place_of(checkpoint_);
}

RunState Resumption::load(TrainingState& state) {
  while (!checkpoint_.empty()) {
    try {
      return state.load(checkpoint_, place_);
    } catch (const CheckpointError& error) {
      const auto look = [&](const checkpoint::Peers&) -> std::string {
        if (place_ != nullptr) return error.what();  // no host has all of its files
        const auto problems = checkpoint::verify(checkpoint_).problems;
        return problems.empty() ? std::string() : problems.front();
      };
      const std::string problem = checkpoint::from_root(world_, look, on_wait_);
      if (problem.empty()) throw;  // it is whole, and does not fit
      damaged_[checkpoint_] = problem;
    }
    find();
    state.build();  // the damaged one may have left values in it
  }
  return state.begin();
}

}  // namespace trireme::train::inline internal
