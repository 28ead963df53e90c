// Learners that do not wait for each other: each pushes what it has learned to parameter servers,
// which change the common weights once enough learners have.
// Source: arXiv:2604.21428 (Decoupled DiLoCo)
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/learner/rounds.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/train/config/config.h"
#include "trireme/train/learner/decoupled_state.h"
#include "trireme/train/parameter_servers.h"

namespace trireme::train {

// Each learner is one worker of the servers: its first rank has the client, and the others get the
// weights from it. Learners meet at checkpoints and at the end. Rounds under way end there with
// what they have, so a checkpoint has none of them.
class DecoupledLearners final : public ServerStrategy {
 public:
  DecoupledLearners(const RunConfig& config, comm::Communicator& world, TrainObserver& observer);

  comm::Communicator& mesh_ranks() const override { return *ranks_; }
  comm::Communicator& savers(const mesh::DeviceMesh& /*model*/) const override {
    return trainers();
  }
  comm::Communicator& peers() const override { return *ranks_; }
  bool is_alone() const override { return true; }
  bool has_met() const override { return false; }

  void prepare(RunConfig& config) override { config.learner = learner_; }
  void attach(TrainingState& state) override;
  void start(const RunStart& start, TrainingState* state) override;
  void connect(const std::function<bool()>& is_stopped) override;

  void begin_step(int64_t step) override;
  int64_t count_terms(ParallelModel& model, int64_t own) override;
  void end_step() override;
  void add_metrics(StepMetrics& metrics) const override;
  std::chrono::nanoseconds waited() const override { return waited_; }

  Meeting meet(int64_t step, Leave leave) override;
  Meeting leave(int64_t step, Leave leave) override;

 private:
  void hand_out(const std::vector<parallel::ServedParameter>& parameters,
                std::vector<CommonWeights>& weights);
  void push(int fragment);
  void begin_exchange(int fragment);
  void take(double own_share);
  Meeting gather_at(int64_t step, Leave leave);
  void tell_of_lost();
  void fetch_common(const Meeting& meeting);

  int learner_;
  std::unique_ptr<comm::Communicator> ranks_;  // of this learner; on servers: this one
  parallel::Rounds rounds_;
  TrainingState* training_ = nullptr;
  std::unique_ptr<DecoupledState> state_;           // on ranks that train
  std::unique_ptr<parallel::ServerClient> client_;  // on each learner's first rank
  RunStart start_;
  int64_t step_ = 0;
  int64_t num_pushes_ = 0;              // number of the last push, for the servers
  std::vector<double> samples_;         // terms since the last push, by fragment
  std::vector<int64_t> versions_;       // of each weight's base
  std::optional<int> fragment_;         // that is under way
  bool is_lost_ = false;                // this learner's part of it was not finite
  int64_t num_lost_ = 0;                // such parts since the last meeting; with the client
  int64_t sent_before_ = 0;             // bytes, when it began
  std::optional<Meeting> last_;         // at which learners leave
  std::chrono::nanoseconds waited_{0};  // in this step
  // Of the exchange that ended in this step.
  struct Taken {
    int64_t learners = 0;
    int64_t staleness = 0;
    int64_t bytes = 0;
  };
  std::optional<Taken> taken_;
};

}  // namespace trireme::train
