#include "trireme/train/teacher_ranks.h"

#include <chrono>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/objects.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/memory_check.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/step_reports.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::train {
namespace {

// The one stage of a teacher on ranks of its own.
TeacherEdges edges_of_teacher(const RunConfig& teacher) {
  const std::vector<StageEdges> edges =
      teacher.task->model().edges_of(pipeline_layout(teacher).parts());
  return {.inputs = edges.front().inputs, .output = edges.front().outputs.front()};
}

}  // namespace

TeacherRanks::TeacherRanks(RunConfig config, comm::Communicator& world, TrainObserver& observer)
    : config_(std::move(config)), world_(world), observer_(observer) {
  const ParallelConfig& parallel = config_.parallel;
  const int num_teachers = static_cast<int>(parallel.teachers);
  routes_ = {.first_teacher = world.size() - num_teachers,
             .num_copies = num_teachers / static_cast<int>(parallel.teacher_tensor),
             .ranks_per_copy = static_cast<int>(parallel.teacher_tensor)};
  const RunConfig teacher = remote_teacher_config(config_).value();
  edges_ = edges_of_teacher(teacher);
  const bool is_teacher = world.rank() >= routes_.first_teacher;
  // Copies have nothing to say to each other.
  const int copy = (world.rank() - routes_.first_teacher) / routes_.ranks_per_copy;
  role_ = world.split(is_teacher ? 1 + copy : 0, 0, is_teacher ? "teacher" : "students");
  messages_ = world.split(0, 0, "teaching");
  if (is_teacher) return;
  remote_ = std::make_shared<RemoteTeacher>(edges_, teacher.dtype(),
                                            std::chrono::seconds(parallel.timeout_seconds));
}

const mesh::DeviceMesh& TeacherRanks::mesh_of_model(const mesh::DeviceMesh& of_trainers) {
  of_trainers_ = &of_trainers;
  return of_trainers;  // NOLINT(bugprone-return-const-ref-from-parameter): it outlives the run
}

void TeacherRanks::load_teacher() {
  try {
    RunConfig teacher = remote_teacher_config(config_).value();
    const std::string key = config_.task->traits().teacher_key;
    mesh_.emplace(*role_, mesh_axes(teacher.parallel));
    teacher_.emplace(std::move(teacher), *mesh_);
    teacher_->load(key, Weights::kLast, tell(observer_));
  } catch (...) {
    rethrow_with_memory_advice([this] { return teacher_memory_advice(config_); });
  }
}

// Of a rank that trains and has the last stage; -1: it has not.
int64_t TeacherRanks::data_rank(const TrainingState& state) const {
  const int last = state.model().layout().rank_of_stage.back();
  if (of_trainers_->coordinate("pipeline") != last) return -1;
  return of_trainers_->position(sample_axes()).index;
}

void TeacherRanks::start(const RunStart& /*start*/, TrainingState* state) {
  DataIdentity identity;
  checkpoint::run_or_throw(
      world_,
      [&](const checkpoint::Peers&) {
        identity = config_.task->identify_teacher();
        if (!trains()) load_teacher();
      },
      tell(observer_));
  require_same_data(identity, config_.task->traits().teacher_name + " (teacher)", world_);
  routes_.data_ranks = comm::all_gather_numbers(*messages_, state ? data_rank(*state) : -1);
  if (state != nullptr) {
    remote_->connect(*messages_, routes_);
    state->model().use_teacher(remote_);
    return;
  }
  server_.emplace(*messages_, routes_, mesh_->group("tensor"), edges_);
  server_->send_head(teacher_->model().head());
}

void TeacherRanks::serve() {
  try {
    server_->serve([this](const dataset::Batch& batch) {
      return teacher_->model().outputs({batch}).at(edges_.output).front();
    });
  } catch (...) {
    rethrow_with_memory_advice([this] { return teacher_memory_advice(config_); });
  }
}

Outcome TeacherRanks::finish(Outcome outcome) {
  if (remote_) remote_->leave();
  return static_cast<Outcome>(
      comm::all_gather_numbers(world_, static_cast<int64_t>(outcome)).front());
}

}  // namespace trireme::train
