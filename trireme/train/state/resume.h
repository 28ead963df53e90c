// Decides where a run continues and whether it may, and loads what it continues with: finds its
// newest checkpoint in memory, on a local disk or in its folder, and compares config and data with
// those that made it. docs/guide/resume.md lists what may change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/newest_checkpoint.h"
#include "trireme/train/state/places.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::train {

struct Change {
  std::string key;
  std::string before;  // in TOML
  std::string after;
  OnResume rule = OnResume::kMustStay;
  bool operator==(const Change&) const = default;
};

// The keys whose values differ, in the schema's order.
std::vector<Change> changes(const RunConfig& before, const RunConfig& after);

struct ResumePoint {
  std::filesystem::path checkpoint{};  // empty: the run begins at step 1
  std::vector<std::string> notes{};    // for the user, one line each
  // For the whole run: that of its config, or if that leaves it open, of the run so far.
  GradientOrder gradient_order = GradientOrder::kMicrobatchFirst;
  // Those of train.shares, or without it of the run so far, from step 0; empty: equal ones.
  std::vector<dataset::Shares> shares{};
};

// Finds the newest checkpoint, as newest_checkpoint() does, in config.output.folder and among the
// `fast` ones. `config` must be resolved. `data` is what it trains on and `validation` what it
// evaluates on, if anything. Data is compared by content: data.path may change to a copy, but must
// stay if the checkpoint does not identify its data. The same holds for the teacher, if any.
// Throws: ConfigError when a key that must stay has changed and resume.allow does not name it;
//         CheckpointError when a checkpoint that existed is missing, or none is whole
ResumePoint find_resume_point(const RunConfig& config, const DataIdentity& data,
                              const DataIdentity& validation = {},
                              const DamagedCheckpoints& damaged = {},
                              std::span<const FastCheckpoint> fast = {},
                              const DataIdentity& teacher = {});

// The file in a run's folder that says that the run has had a checkpoint.
inline constexpr const char* kCheckpointNote = "first_checkpoint.json";
// Writes it: the first one was at `step`.
void note_checkpoint(const std::filesystem::path& folder, int64_t step);

// "; since it was saved ...": the changes that can change a checkpoint's tensors. "" when there are
// none or the checkpoint cannot be read.
std::string describe_changes(const std::filesystem::path& checkpoint, const RunConfig& config);

// "model.rope_base 10000.0 -> 500000.0": the keys of [model] and [lora] by which a run that begins
// with the weights of `checkpoint` computes another model than the run that has saved them. "" when
// there are none or the checkpoint cannot be read.
std::string describe_other_model(const std::filesystem::path& checkpoint, const RunConfig& config);

// Finds out where a run begins, and loads what it begins with: from its newest checkpoint that is
// whole, in memory, on a local disk or in its folder.
// Not thread safe. Every function that is not const is collective. `config`, `world` and `places`
// must outlive it.
class Resumption {
 public:
  // Identifies the data and the teacher, and finds the checkpoint. Rank 0 looks, so that all ranks
  // load the same.
  // Throws: as find_resume_point(), on all ranks; ConfigError when ranks have different data or
  //         teachers
  Resumption(const RunConfig& config, comm::Communicator& world, const Places& places,
             checkpoint::OnWait on_wait);

  // Loads the checkpoint into `state`. If it is damaged, takes the newest one before it that is
  // not, with a note. Without a checkpoint the state begins anew.
  // Throws: CheckpointError when none is whole; as TrainingState::load()
  RunState load(TrainingState& state);

  // The one that was loaded; empty: none.
  const std::filesystem::path& checkpoint() const { return checkpoint_; }
  // Whether the checkpoint is in the run's folder, and not only in a faster place.
  bool is_in_folder() const { return place_ == nullptr; }
  // Not kAuto.
  GradientOrder gradient_order() const { return gradient_order_; }
  // As ResumePoint::shares, those that rank 0 has found.
  const std::vector<dataset::Shares>& shares() const { return shares_; }
  std::string place() const { return place_ != nullptr ? place_->name : "output.folder"; }
  const DataIdentity& data() const { return data_; }
  const DataIdentity& validation() const { return validation_; }  // unknown without evaluation
  const DataIdentity& teacher() const { return teacher_; }        // unknown without one
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
  DataIdentity teacher_;
  DamagedCheckpoints damaged_;
  std::filesystem::path checkpoint_;  // empty: the run begins at step 1
  GradientOrder gradient_order_ = GradientOrder::kMicrobatchFirst;
  std::vector<dataset::Shares> shares_;
  const FastPlace* place_ = nullptr;  // where it is; null: in the run's folder
  std::vector<std::string> notes_;
};

}  // namespace trireme::train
