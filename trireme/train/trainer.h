// The training loop around the step: resume, train, evaluate, checkpoint, stop when asked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"
#include "trireme/train/observer.h"
#include "trireme/train/profile/profiler.h"

namespace trireme::train {

class TrainerImpl;
class UpdateStrategy;

class Trainer {
 public:
  // Opens the data, builds the model, and resumes from the newest checkpoint in output.folder if
  // there is one of this run, see resume.h. `world` and `observer` must outlive the trainer. With
  // profile.num_steps, run() profiles and writes output.folder/profile/trace.json.
  // Collective: every rank of `world`, with the same config and profile
  // Throws:     ConfigError, CheckpointError, CommError
  Trainer(RunConfig config, comm::Communicator& world, TrainObserver& observer,
          const ProfileOptions& profile = {});
  ~Trainer();

  // Trains to train.steps or until some rank's `stop` says so. Then it finishes the current step,
  // saves a checkpoint and returns. An evaluation under way is cut short and left out.
  // Collective: every rank
  // Throws:     ConfigError on every rank when output.folder is not in its place any more; whatever
  //             the step and the checkpoint throw
  Outcome run(const std::function<bool()>& stop);
  Outcome run(const std::atomic<bool>& stop);

  // Ends reads of the data that wait for a store: run() throws CommError if it needs them. For a
  // rank that has to leave. Any thread may call it. The destructor does the same.
  void cancel_reads() const;

 private:
  std::shared_ptr<MemoryLedger> memory_;  // of impl_; errors tell what was in it
  std::unique_ptr<UpdateStrategy> updates_;
  std::unique_ptr<TrainerImpl> impl_;           // null on a rank that does not train
  std::function<std::string()> memory_advice_;  // for errors
  std::string shared_memory_advice_;
};

}  // namespace trireme::train
