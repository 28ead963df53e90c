// The checkpoints of a run while it goes on: begins them, and tells when they have ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "trireme/checkpoint/write/saver.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/state/places.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/training_state.h"

namespace trireme::train {

// Every function that is not const is collective. One save at a time.
class Saves {
 public:
  Saves(const RunConfig& config, TrainingState& state, comm::Communicator& world);

  // Begins to write a checkpoint of the run at `position`, to all places or only to memory. An
  // earlier save must have ended before.
  // Throws: as TrainingState::save()
  void start(const Places& places, const RunState& position, bool only_memory = false);

  bool is_busy() const { return saver_.is_busy(); }

  // The checkpoint, once it has ended; nothing while it goes on, or when there is none in the run's
  // folder. `waits`: waits for it.
  // Throws: the save's error; CommError. With checkpoint.on_error = "warn" an error of the disk is
  //         a warning, and there is no checkpoint.
  std::optional<checkpoint::Saved> finish(bool waits);

  // Tells of the last warning once, for the user.
  std::optional<std::string> take_warning();

  // Waits for a save whose folder is lost, whatever its end.
  void abandon();

  // Duration of the longest save to the run's folder so far.
  std::chrono::nanoseconds longest() const { return longest_; }
  // Adds the saves that began or failed since the previous line to the step's metrics.
  void add_metrics(StepMetrics& metrics);

 private:
  const RunConfig& config_;
  TrainingState& state_;
  checkpoint::Saver saver_;
  bool only_memory_ = false;  // the save under way
  std::chrono::nanoseconds longest_{0};
  std::optional<double> stall_seconds_;  // of a save since the last line
  int64_t num_failed_ = 0;
  std::optional<std::string> warning_;
};

}  // namespace trireme::train
