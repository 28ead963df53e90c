// Runs whose ranks form learners: groups that train by themselves for some steps and then exchange
// what they have learned.
// Source: Stich 2018, arXiv:1805.09767 (local SGD); Lin et al. 2018, arXiv:1808.07217 (post-local
//         SGD); Douillard et al. 2023, arXiv:2311.08105 (DiLoCo); 2025, arXiv:2501.18512
//         (Streaming DiLoCo)
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/learner/rounds.h"
#include "trireme/train/config/config.h"
#include "trireme/train/learner/learner_rounds.h"
#include "trireme/train/learner/learner_state.h"
#include "trireme/train/observer.h"
#include "trireme/train/update_strategy.h"

namespace trireme::train {

// Between exchanges nothing is sent between learners. So a request to stop counts from the next
// exchange on, which brings it to all of them.
class LearnerUpdates final : public UpdateStrategy {
 public:
  LearnerUpdates(const RunConfig& config, comm::Communicator& world, TrainObserver& observer);

  comm::Communicator& trainers() const override { return world_; }
  comm::Communicator& mesh_ranks() const override { return *ranks_; }
  comm::Communicator& savers(const mesh::DeviceMesh& /*model*/) const override { return world_; }
  comm::Communicator& peers() const override { return *ranks_; }
  bool is_alone() const override { return true; }
  // Of all learners, as the samples of a step are.
  int num_devices() const override {
    return world_.size() * static_cast<int>(config_.parallel.learners / config_.learners_here());
  }
  bool has_met() const override { return has_exchanged_ || is_together() || meeting_; }

  void prepare(RunConfig& config) override { config.learner = learner_; }
  void attach(TrainingState& state) override;
  void start(const RunStart& start, TrainingState* state) override;
  // Waits until this learner is one of those that meet.
  void connect(const std::function<bool()>& is_stopped) override;

  void begin_step(int64_t step) override;
  int64_t count_terms(ParallelModel& model, int64_t own) override;
  std::vector<double> sums_over_batches(const ParallelModel& model, std::vector<double> mine,
                                        size_t num_batches) override;
  void end_backward() override;
  void end_step() override;
  Leave settle(Leave of_peers) override;
  void add_metrics(StepMetrics& metrics) const override;
  std::chrono::nanoseconds waited() const override { return waited_; }
  Meeting meet(int64_t step, Leave leave) override;
  int64_t reached_step(int64_t step) const override { return std::max(step, reached_); }
  Outcome finish(Outcome outcome) override;

 private:
  bool is_together() const { return step_ <= config_.outer.begin; }
  void begin(int fragment);
  void finish(double own_share, bool is_mean = false);
  void finish_run();
  void meet_others();
  void take_over(std::optional<int64_t> reached, int64_t num_left_out);
  void mix(int fragment);
  void take_in(const LearnerState::Arrival& arrival);
  std::vector<double> take_notes();
  std::optional<parallel::LearnerGraph> find_graph();

  RunConfig config_;
  comm::Communicator& world_;
  TrainObserver& observer_;
  int learner_;
  std::unique_ptr<comm::Communicator> ranks_;     // of this learner
  std::unique_ptr<comm::Communicator> learners_;  // of equal place
  std::unique_ptr<LearnerRounds> meeting_;        // with learners that are runs of their own
  parallel::Rounds rounds_;
  std::unique_ptr<LearnerState> state_;
  int64_t num_steps_ = 0;
  int64_t step_ = 0;
  int64_t reached_ = 0;             // that others' weights were taken of
  ParallelModel* model_ = nullptr;  // of one that joins
  bool joins_ = false;              // has to meet the others before it trains
  int64_t begun_ = 0;               // the step after which it has started
  int64_t base_ = 0;                // the step of the common weights that this learner has
  int64_t num_late_ = 0;            // of its steps, what they have taught is in no round yet
  double terms_ = 1;
  double losses_ = 0;  // of this learner since the last exchange
  double num_losses_ = 0;
  // A run that goes on within a round does not know the losses before.
  bool lacks_losses_ = false;
  bool lacks_noted_ = false;    // alike, of the notes of the exchange that began last
  Leave asked_ = Leave::kNo;    // by a rank of this learner
  Leave decided_ = Leave::kNo;  // by all learners
  std::chrono::nanoseconds waited_{0};
  // Of exchanges that ended in this step.
  bool has_exchanged_ = false;
  int64_t sent_bytes_ = 0;
  std::optional<double> spread_;
  std::optional<double> mean_loss_;
  bool has_notes_ = false;
  bool is_restored_ = false;  // one of them came from a checkpoint, without its metrics
};

}  // namespace trireme::train
