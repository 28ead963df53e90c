// Finds out where a run begins, and loads what it begins with: from the newest checkpoint in its
// folder that is whole.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"
#include "trireme/train/resume.h"
#include "trireme/train/state.h"
#include "trireme/train/task/data_identity.h"
#include "trireme/train/training_state.h"

namespace trireme::train::inline internal {

// Not thread safe. Every function that is not const is collective. `config` and `world` must
// outlive it.
class Resumption {
 public:
  // Identifies the data, and finds the checkpoint. Rank 0 looks, so that all ranks load the same.
  // Throws: as find_resume_point(), on all ranks; ConfigError when ranks have different data
  Resumption(const RunConfig& config, comm::Communicator& world, checkpoint::OnWait on_wait);

  // Loads the checkpoint into `state`. If it is damaged, takes the newest one before it that is
  // not, with a note. Without a checkpoint the state begins anew.
  // Throws: CheckpointError when none is whole; as TrainingState::load()
  RunState load(TrainingState& state);

  const DataIdentity& data() const { return data_; }
  const DataIdentity& validation() const { return validation_; }  // unknown without evaluation
  // For the user, on rank 0.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void identify_data();
  void find();

  const RunConfig& config_;
  comm::Communicator& world_;
  checkpoint::OnWait on_wait_;
  DataIdentity data_;
  DataIdentity validation_;
  DamagedCheckpoints damaged_;
  std::filesystem::path checkpoint_;  // empty: the run begins at step 1
  std::vector<std::string> notes_;
};

}  // namespace trireme::train::inline internal
