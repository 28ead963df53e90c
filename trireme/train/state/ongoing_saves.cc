#include "trireme/train/state/ongoing_saves.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// What is on a disk is there because memory has no room for it, nor for a copy.
bool saves_in_background(const RunConfig& config) {
  return config.checkpoint.mode == CheckpointMode::kAsync &&
         config.offload.optimizer != OffloadPlace::kDisk &&
         config.offload.parameters != OffloadPlace::kDisk &&
         !config.task->model().traits().has_tables_on_disk && !config.remote_rows;
}

}  // namespace

Saves::Saves(const RunConfig& config, TrainingState& state, comm::Communicator& world)
    : config_(config),
      state_(state),
      saver_(world, {.in_background = saves_in_background(config),
                     .has_replicas = config.checkpoint.replicas > 0}) {}

void Saves::start(const Places& places, const RunState& position, bool only_memory) {
  only_memory_ = only_memory;
  state_.start_save(saver_, places, position, only_memory);
}

std::optional<checkpoint::Saved> Saves::finish(bool waits) {
  try {
    auto saved = saver_.finish(waits);
    if (!saved) return saved;
    stall_seconds_ = in_seconds(saved->stall);
    if (only_memory_) return std::nullopt;
    longest_ = std::max(longest_, saved->took);
    return saved;
  } catch (const CommError&) {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    if (config_.checkpoint.on_error == CheckpointOnError::kStop || saver_.was_refused()) throw;
    ++num_failed_;
    warning_ = concat("CHECKPOINT NOT SAVED: ", error.what(),
                      "; the run goes on, as checkpoint.on_error is \"warn\"");
    return std::nullopt;
  }
}

std::optional<std::string> Saves::take_warning() { return std::exchange(warning_, std::nullopt); }

void Saves::abandon() {
  try {
    saver_.finish(/*waits=*/true);
  } catch (const CommError&) {
    throw;
  } catch (const Error&) {
  }
}

void Saves::add_metrics(StepMetrics& metrics) {
  if (stall_seconds_) {
    metrics.others.emplace_back("checkpoint_stall_seconds", *stall_seconds_);
    stall_seconds_.reset();
  }
  if (num_failed_ > 0) {
    metrics.others.emplace_back("failed_checkpoints", static_cast<double>(num_failed_));
  }
}

}  // namespace trireme::train
