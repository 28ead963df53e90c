// Runs whose last ranks are parameter servers. The servers hold all parameters, and each of the
// other ranks trains the whole model; or they hold only the embedding tables, and the others train
// the rest in an ordinary run.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/server/host_sums.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/parallel/server/state/key_ranges.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/config/config.h"
#include "trireme/train/observer.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/server/served_tables.h"
#include "trireme/train/server/server_ranks.h"
#include "trireme/train/state/step_part.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/update_strategy.h"

namespace trireme::train {

// The layout of a rank that has the whole model.
ParallelConfig for_one_rank(ParallelConfig parallel);

// What both have in common.
class ServerStrategy : public UpdateStrategy {
 public:
  ServerStrategy(RunConfig config, comm::Communicator& world, TrainObserver& observer);

  comm::Communicator& trainers() const override { return servers_.role(); }
  bool trains() const override { return !servers_.is_server(); }
  void serve() override { servers_.serve(); }
  Outcome finish(Outcome outcome) override;

 protected:
  bool is_root() const { return world_.rank() == 0; }
  // Lets the model of this rank, as its config says, find the tables' rows on servers.
  // savers: the workers among which a checkpoint's rows are divided
  void find_rows_on_servers(RunConfig& config, comm::Communicator& savers, bool reads_ahead);
  // Rank 0's start, on every rank.
  // Collective: every rank of the world
  RunStart start_of_root(const RunStart& mine);
  // The workers wait for it, and fail if it fails.
  // Collective: every rank of the world
  void on_servers(const std::function<void()>& work);

  RunConfig config_;
  comm::Communicator& world_;
  TrainObserver& observer_;
  ServerRanks servers_;
  std::unique_ptr<comm::Communicator> self_;  // a group of this rank
  mesh::DeviceMesh mesh_;                     // of this rank, which has the whole model
  std::shared_ptr<PulledRows> pulled_;        // on ranks that train, if rows are on servers
  std::shared_ptr<OwnedRows> owned_;          // on servers, if rows are
};

// How far ranks have come that are in different steps.
// Comm:       32 bytes from each of them to all
// Collective: every rank of `ranks`
// counts: whether the sum includes this rank's steps
Meeting meet(comm::Communicator& ranks, int64_t step, Leave leave, bool counts = true);

// All parameters are on servers. Without parallel.staleness the workers' losses and weights have
// the same bits as data parallelism over as many ranks; otherwise each worker is in a step of its
// own.
class ParameterServers final : public ServerStrategy {
 public:
  ParameterServers(const RunConfig& config, comm::Communicator& world, TrainObserver& observer);
  ~ParameterServers() override;

  void prepare(RunConfig& config) override;
  const mesh::DeviceMesh& mesh_of_model(const mesh::DeviceMesh& of_trainers) override;
  void start(const RunStart& start, TrainingState* state) override;
  void connect(const std::function<bool()>& is_stopped) override;
  Outcome finish(Outcome outcome) override;

  comm::Communicator& peers() const override;
  bool is_alone() const override { return !is_synchronous(); }
  void begin_step(int64_t step) override;
  void await_weights() override;
  int64_t count_terms(ParallelModel& model, int64_t own) override;
  std::vector<double> sums_over_batches(const ParallelModel& model, std::vector<double> mine,
                                        size_t num_batches) override;
  std::span<StepPart* const> parts(TrainingState& /*state*/) override { return parts_; }
  std::optional<double> norm_factor() const override;
  void end_step() override;
  std::chrono::nanoseconds waited() const override { return waited_; }
  int64_t gradient_bytes(const ParallelModel& /*model*/) const override { return gradient_bytes_; }

  bool root_saves() const override { return true; }
  Meeting meet(int64_t step, Leave leave) override;
  Meeting leave(int64_t step, Leave leave) override;
  void fetch(const Meeting& meeting) override;

 private:
  class PushedPart;

  bool is_synchronous() const { return config_.parallel.staleness == 0; }
  // Whether this worker has a client.
  bool talks() const { return !host_ || host_->rank() == 0; }
  std::vector<parallel::ServedParameter> tables() const;
  parallel::MakePiece pieces();
  void pull_rows_from(parallel::ServerClient& client);
  void push(double learning_rate, double factor);

  std::optional<Callbacks> callbacks_;  // on servers: none
  std::optional<TrainingState> own_;    // on servers
  TrainingState* state_ = nullptr;
  const mesh::DeviceMesh* workers_ = nullptr;
  std::unique_ptr<comm::Communicator> host_;  // the workers of this host; null without host_sums
  std::unique_ptr<parallel::ServerClient> client_;
  std::unique_ptr<parallel::ServerClient> reader_;  // on rank 0, once it has left
  std::optional<parallel::HostSums> host_sums_;
  std::unique_ptr<PushedPart> pushed_;
  std::array<StepPart*, 2> parts_{};
  int64_t num_dense_ = 0;  // dense parameters; tables are numbered after them
  RunStart start_;
  int64_t step_ = 0;              // the step under way, counted from this start
  std::vector<at::Tensor> held_;  // gradients that are being pushed
  int64_t sent_before_ = 0;       // bytes, at the step's first push
  int64_t gradient_bytes_ = 0;
  std::chrono::nanoseconds waited_{0};
  std::optional<Meeting> last_;  // at which a worker left
  bool has_left_ = false;
};

// Embedding tables are on servers, while workers train all other parameters synchronously.
// Source: Lian et al. 2022, "Persia: an open, hybrid system scaling deep learning-based
//         recommenders up to 100 trillion parameters", KDD, arXiv:2111.05897, section 4
class TableServers final : public ServerStrategy {
 public:
  TableServers(const RunConfig& config, comm::Communicator& world, TrainObserver& observer);

  void prepare(RunConfig& config) override;
  void start(const RunStart& start, TrainingState* state) override;
  void connect(const std::function<bool()>& is_stopped) override;
  Outcome finish(Outcome outcome) override;
  std::string report() const override;

 private:
  std::vector<parallel::ServedParameter> tables_;
  std::unique_ptr<parallel::ServerClient> client_;
};

}  // namespace trireme::train
