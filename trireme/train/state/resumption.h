// Finds out where a run begins, and loads what it begins with: from its newest checkpoint that is
// whole, in memory, on a local disk or in its folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/places.h"
#include "trireme/train/state/resume.h"
#include "trireme/train/state/state.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::train::inline internal {

// Not thread safe. Every function that is not const is collective. `config`, `world` and `places`
// must outlive it.
class Resumption {
 public:
  // Identifies the data, and finds the checkpoint. Rank 0 looks, so that all ranks load the same.
  // Throws: as find_resume_point(), on all ranks; ConfigError when ranks have different data
  Resumption(const RunConfig& config, comm::Communicator& world, const Places& places,
             checkpoint::OnWait on_wait);

  // Loads the checkpoint into `state`. If it is damaged, takes the newest one before it that is
  // not, with a note. Without a checkpoint the state begins anew.
  // Throws: CheckpointError when none is whole; as TrainingState::load()
  RunState load(TrainingState& state);

  // The one that was loaded; empty: none.
  const std::filesystem::path& checkpoint() const { return checkpoint_; }
  // Whether the checkpoint is in the run's folder, and not in a faster place alone.
  bool is_in_folder() const { return place_ == nullptr; }
  std::string place() const { return place_ != nullptr ? place_->name : "output.folder"; }
  const DataIdentity& data() const { return data_; }
  const DataIdentity& validation() const { return validation_; }  // unknown without evaluation
  // For the user, on rank 0.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void identify_data();
  void find();
  std::vector<FastCheckpoint> find_fast();
  const FastPlace* place_of(const std::filesystem::path& checkpoint) const;

  const RunConfig& config_;
  comm::Communicator& world_;
  const Places& places_;
  checkpoint::OnWait on_wait_;
  DataIdentity data_;
  DataIdentity validation_;
  DamagedCheckpoints damaged_;
  std::filesystem::path checkpoint_;  // empty: the run begins at step 1
  const FastPlace* place_ = nullptr;  // where it is; null: in the run's folder
  std::vector<std::string> notes_;
};

}  // namespace trireme::train::inline internal
