// Trains as one rank, and shows it on the terminal if this is rank 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "trireme/cli/train/rank_group.h"
#include "trireme/train/config/config.h"
#include "trireme/train/trainer.h"

namespace trireme::cli::inline internal {

// A time between two changes of the job's ranks. A job without an agent has one.
struct Epoch {
  int64_t number = 1;
  std::string reason{};  // of a later one, for people
  // Called for each step that this rank has finished.
  std::function<void(int64_t step)> on_finished = nullptr;
  // Whether the ranks should finish their step, save and leave the epoch. Null: never.
  std::function<bool()> has_to_finish = nullptr;
};

// Set by SIGTERM, SIGINT and SIGHUP (unless ignored, as under nohup) once stop_on_signals() was
// called.
extern const std::atomic<bool>& stop_requested;
void stop_on_signals();

// Trains with the ranks of `group` until the run ends, stop_requested is set or the epoch has to be
// finished; then finishes its step and saves.
// Throws: as Trainer
train::Outcome train_rank(const train::RunConfig& config, RankGroup& group,
                          const train::ProfileOptions& profile, const Epoch& epoch = {});

}  // namespace trireme::cli::inline internal
