// A frozen model from which another one learns on the same ranks (Task::make_teacher): built with
// the run's mesh, ZeRO stage and precision, from weights that are read anew at each start. It has
// no gradients, no optimizer and no part in checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/parallel_model.h"

namespace trireme::train {

// Thread safety: as ParallelModel.
class FrozenTeacher {
 public:
  // With the values of a new run. config: the student's, which has a teacher; its data is open
  // Collective: every rank of the mesh's world
  // Throws:     as ParallelModel()
  FrozenTeacher(const RunConfig& config, const mesh::DeviceMesh& mesh,
                std::shared_ptr<const bool> overlap = nullptr);

  // Fills in the weights.
  // Collective: every rank of the mesh's world
  // Throws:     as load_initial_weights()
  void load(const checkpoint::OnWait& on_wait = {});

  ParallelModel& model() { return model_; }
  // Lines for people.
  std::vector<std::string> notes() const;

 private:
  RunConfig config_;
  ParallelModel model_;
};

}  // namespace trireme::train
