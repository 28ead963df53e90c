// A model that is not trained, on a mesh: one from which another one learns (Task::make_teacher),
// or one that is asked. Built with a config's ZeRO stage and precision, from weights that are read
// anew at each start. It has no gradients, no optimizer and no part in checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::train {

// Lines of a teacher for people. teacher: its config
std::vector<std::string> notes_of_teacher(const RunConfig& teacher);

// Thread safety: as ParallelModel.
class FrozenModel {
 public:
  // With the values of a new run. config: from frozen_config() or teacher_config()
  // Collective: every rank of the mesh's world
  // Throws:     as ParallelModel()
  FrozenModel(RunConfig config, const mesh::DeviceMesh& mesh,
              std::shared_ptr<const bool> overlap = nullptr);

  // Fills in the weights of config.init.folder, and the rows of embedding tables, which are those
  // of the last step. key: what names the folder, for messages
  // Collective: every rank of the mesh's world
  // Throws:     as load_initial_weights(); CheckpointError on every rank when the average of a
  //             checkpoint's weights is asked for and there is none, or values are not finite
  void load(const std::string& key, Weights weights = Weights::kLast,
            const checkpoint::OnWait& on_wait = {});

  ParallelModel& model() { return model_; }
  std::vector<std::string> notes() const { return notes_of_teacher(config_); }

 private:
  RunConfig config_;
  ParallelModel model_;
};

}  // namespace trireme::train
