// Runs whose last ranks hold the teacher and train nothing (parallel.teachers). The others train as
// they would alone, and learn from what these say of their microbatches.
#pragma once

#include <memory>
#include <optional>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"
#include "trireme/train/observer.h"
#include "trireme/train/parallel/remote_teacher.h"
#include "trireme/train/state/frozen_model.h"
#include "trireme/train/update_strategy.h"

namespace trireme::train {

class TeacherRanks final : public UpdateStrategy {
 public:
  // config: checked, with a teacher. `world` and `observer` must outlive it.
  // Collective: every rank of `world`
  TeacherRanks(RunConfig config, comm::Communicator& world, TrainObserver& observer);
  ~TeacherRanks() override {
    if (remote_) remote_->abandon();  // a copy of the config may outlive the groups
  }

  comm::Communicator& trainers() const override { return *role_; }
  bool trains() const override { return remote_ != nullptr; }
  int num_devices() const override { return world_.size(); }
  void prepare(RunConfig& config) override { config.remote_teacher = remote_; }
  const mesh::DeviceMesh& mesh_of_model(const mesh::DeviceMesh& of_trainers) override;
  // Reads the teacher's weights, and gives those that train its head.
  // Throws: as FrozenModel::load(); ConfigError when a host has another teacher
  void start(const RunStart& start, TrainingState* state) override;
  void serve() override;
  Outcome finish(Outcome outcome) override;

 private:
  void load_teacher();
  int64_t data_rank(const TrainingState& state) const;

  RunConfig config_;
  comm::Communicator& world_;
  TrainObserver& observer_;
  TeacherRoutes routes_;
  TeacherEdges edges_;
  std::unique_ptr<comm::Communicator> role_;      // of the ranks that train, or of one copy
  std::unique_ptr<comm::Communicator> messages_;  // of all ranks
  std::shared_ptr<RemoteTeacher> remote_;         // on ranks that train
  const mesh::DeviceMesh* of_trainers_ = nullptr;
  std::optional<mesh::DeviceMesh> mesh_;  // of the copy
  std::optional<FrozenModel> teacher_;
  std::optional<TeacherServer> server_;
};

}  // namespace trireme::train
