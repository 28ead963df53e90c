// What the trainer owns. trainer.cc has the loop, trainer_saves.cc what it does about checkpoints.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/seconds.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/parallel/overlap_choice.h"
#include "trireme/train/parallel/stage_balance.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/server/server_ranks.h"
#include "trireme/train/state/places.h"
#include "trireme/train/state/resumption.h"
#include "trireme/train/state/saves.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/step.h"
#include "trireme/train/step_reports.h"
#include "trireme/train/trainer.h"

namespace trireme::train::inline internal {

inline checkpoint::OnWait tell(TrainObserver& observer) {
  return [&observer](std::span<const int> ranks, std::chrono::milliseconds waited) {
    observer.on_wait(ranks, in_seconds(waited));
  };
}

// See ServerRanks::finish().
inline Outcome finish(ServerRanks& servers, Outcome outcome, TrainObserver& observer) {
  return static_cast<Outcome>(
      servers.finish(static_cast<int>(outcome),
                     [&observer](const std::string& line) { observer.on_finding(line); }));
}

// Where a run, or its continuation, begins.
struct RunStart {
  int64_t step = 0;  // finished
  int64_t optimizer_steps = 0;
  std::filesystem::path checkpoint{};       // that it goes on from; empty: a new run
  std::filesystem::path initial_weights{};  // of a new run; empty: drawn
};

// Not thread safe. Functions that are not const are collective.
class TrainerImpl {
 public:
  // `config` is resolved and its data is open.
  TrainerImpl(RunConfig config, comm::Communicator& world, TrainObserver& observer,
              const ProfileOptions& profile);
  RunStart start() const;
  const ModelTables& tables() const { return state_.model().tables(); }
  Outcome run(const std::function<bool()>& stop);

 private:
  class View;

  bool is_root() const { return world_.rank() == 0; }
  std::filesystem::path folder() const { return config_.output.folder; }
  void build_model();
  std::string from_root(const std::function<std::string()>& produce);
  void on_root(const std::function<void()>& work);
  bool is_due(int64_t interval) const { return interval > 0 && step_ % interval == 0; }
  Leave leave() const;
  Leave ask_again(Leave so_far);
  Leave train_step();
  Leave evaluate_step(Leave so_far);
  Leave end_step(Leave so_far);
  void call(Event event, const std::filesystem::path& checkpoint = {});
  void report(RunPoint when);
  Outcome end(Outcome outcome);
  void rebalance();
  void start_output();
  void save();
  void save_to_memory();
  void finish_save(bool waits);
  RunState position() const;
  [[noreturn]] void leave_lost_folder();
  void profile_pipeline();
  bool finish_profile(bool run_ends);
  RunSummary summary() const;

  RunConfig config_;
  comm::Communicator& world_;
  TrainObserver& observer_;
  std::shared_ptr<comm::Recorder> recorder_;  // of the steps; null: none
  mesh::DeviceMesh mesh_;
  std::optional<RunFolder> output_;  // rank 0
  std::optional<dataset::BatchReader> batches_;
  Callbacks callbacks_;
  CallbackRequests requests_;
  OverlapChoice overlap_;
  TrainingState state_;
  Saves saves_;
  std::optional<StageBalance> balance_;  // if layers may move
  std::optional<dataset::BatchReader> validation_batches_;
  StepMetrics metrics_;  // of the last step
  double gradient_factor_ = 1;
  std::optional<Profiler> profiler_;
  int64_t step_ = 0;                             // finished steps
  int64_t saved_step_ = 0;                       // of the newest checkpoint in the run's folder
  const std::function<bool()>* stop_ = nullptr;  // while run() runs
  std::optional<Places> places_;
  std::optional<Resumption> resumption_;
  std::vector<std::string> resume_notes_;  // rank 0
  StepReports reports_;
  bool tensor_crosses_hosts_ = false;
  bool told_evaluation_ = false;  // of its first bad sample
};

}  // namespace trireme::train::inline internal
