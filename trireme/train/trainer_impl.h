// What the trainer owns. trainer.cc has the loop, trainer_saves.cc what it does about files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/checkpoint/write/saver.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/metrics/series_writer.h"
#include "trireme/train/parallel/overlap_choice.h"
#include "trireme/train/parallel/share_balance.h"
#include "trireme/train/parallel/stage_balance.h"
#include "trireme/train/run/reference_scores.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/state/checkpoint_store.h"
#include "trireme/train/state/ongoing_saves.h"
#include "trireme/train/state/places.h"
#include "trireme/train/state/resume.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/step.h"
#include "trireme/train/step_reports.h"
#include "trireme/train/update_strategy.h"

namespace trireme::train {

// Not thread safe. Functions that are not const are collective: every rank that trains calls them.
class TrainerImpl {
 public:
  // `config` is resolved and its data is open.
  // memory: of what this rank allocates
  TrainerImpl(RunConfig config, std::shared_ptr<MemoryLedger> memory, UpdateStrategy& updates,
              TrainObserver& observer, const ProfileOptions& profile);
  RunStart start() const;
  TrainingState& state() { return state_; }
  // Writes what a run writes before its first step, and tells the user of it.
  // num_ranks: of the world, with those that do not train
  void start_output(int num_ranks);
  Outcome run(const std::function<bool()>& stop);
  // As Task::cancel_reads().
  void cancel_reads() const { config_.task->cancel_reads(); }

 private:
  class View;
  // Readers wait for their threads, which may wait for a store.
  struct EndOfReads {
    const RunConfig& config;
    ~EndOfReads() { config.task->cancel_reads(); }
  };

  bool is_root() const { return world_.rank() == 0; }
  std::filesystem::path folder() const { return config_.output.folder; }
  void open_validation();
  void build_model();
  bool find_reference();
  std::string from_root(const std::function<std::string()>& produce);
  void on_root(const std::function<void()>& work);
  bool is_due(int64_t interval) const { return interval > 0 && step_ % interval == 0; }
  Leave leave() const;
  Leave ask_again(Leave so_far);
  Leave ask_all(Leave so_far);
  Leave train_step();
  Leave evaluate_step(Leave so_far);
  Leave end_step(Leave so_far);
  void call(Event event, const std::filesystem::path& checkpoint = {});
  void report(RunPoint when);
  Outcome end(Outcome outcome);
  void rebalance();
  void share_anew();
  void save(const Meeting& meeting);
  void save_to_memory();
  void finish_save(bool waits);
  void start_store();
  void check_store(bool run_ends);
  void tell_of_store();
  void tell_of(const std::optional<checkpoint::Saved>& saved);
  RunState position() const { return position(step_); }
  RunState position(int64_t step) const;
  [[noreturn]] void leave_lost_folder(const Meeting& meeting);
  void profile_pipeline();
  bool finish_profile(bool run_ends);
  RunSummary summary(int num_ranks) const;
  std::string config_text() const;
  void write_shares() const;
  void start_series();
  void write_series(std::optional<RankRow> ranks);

  // Of what this rank allocates; first, so that it sees all else go.
  const std::shared_ptr<MemoryLedger> memory_;
  RunConfig config_;
  const GradientOrder given_order_;  // that of config_ is resolved
  UpdateStrategy& updates_;
  comm::Communicator& world_;  // of the ranks that train
  TrainObserver& observer_;
  std::shared_ptr<comm::Recorder> recorder_;  // of the steps; null: none
  mesh::DeviceMesh mesh_;
  std::optional<RunFolder> output_;           // rank 0
  std::optional<SeriesWriter> series_;        // rank 0, with watch.ranks
  std::optional<RankNumbers> numbers_;        // the same on all
  std::unique_ptr<CheckpointStore> store_;    // rank 0, with checkpoint.store
  std::optional<ReferenceScores> reference_;  // if samples have scores of the initial model
  std::optional<dataset::BatchReader> batches_;
  Callbacks callbacks_;
  CallbackRequests requests_;
  OverlapChoice overlap_;
  const mesh::DeviceMesh& model_mesh_;  // of one copy of the model
  TrainingState state_;
  Saves saves_;
  std::optional<StageBalance> balance_;              // if layers may move
  std::optional<ShareBalance> share_balance_;        // if shares may change
  std::list<ValidationBatches> validation_batches_;  // empty without evaluation
  StepMetrics metrics_;                              // of the last step
  double gradient_factor_ = 1;
  std::optional<Profiler> profiler_;
  int64_t step_ = 0;                             // finished steps
  int64_t begun_step_ = 0;                       // of the last checkpoint that was begun
  int64_t saved_step_ = 0;                       // of the newest checkpoint in the run's folder
  const std::function<bool()>* stop_ = nullptr;  // while run() runs
  std::optional<Places> places_;
  std::optional<Resumption> resumption_;
  std::vector<std::string> resume_notes_;  // rank 0
  StepReports reports_;
  bool tensor_crosses_hosts_ = false;
  bool told_evaluation_ = false;            // of its first bad sample
  const EndOfReads end_of_reads_{config_};  // last, so that it goes before the readers
};

}  // namespace trireme::train
