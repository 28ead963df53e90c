// A run with parameter servers: the last ranks own the parameters and apply the optimizer; the
// others train, each on the whole model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/server/host_sums.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/server/meeting.h"
#include "trireme/train/server/served_tables.h"
#include "trireme/train/server/server_ranks.h"
#include "trireme/train/state/places.h"
#include "trireme/train/state/resumption.h"
#include "trireme/train/state/saves.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/step.h"
#include "trireme/train/step_reports.h"
#include "trireme/train/trainer.h"

namespace trireme::train::inline internal {

// Not thread safe.
class ServedRun {
 public:
  // config: resolved, its data open.
  // Collective: every rank of `world`
  // Throws:     ConfigError, CheckpointError, CommError
  ServedRun(RunConfig config, comm::Communicator& world, TrainObserver& observer);
  ~ServedRun();

  // Like Trainer::run(). Without staleness, the workers' losses and weights have the same bits as
  // data parallelism over as many ranks.
  // Collective: every rank
  Outcome run(const std::function<bool()>& stop);

 private:
  bool is_root() const { return world_.rank() == 0; }
  bool is_synchronous() const { return config_.parallel.staleness == 0; }
  void use_tables();
  std::vector<parallel::ServedParameter> tables();
  void start_output();
  parallel::MakePiece pieces();
  void pull_from(parallel::ServerClient& client);
  Outcome work(const std::function<bool()>& stop);
  // Whether this worker has a client.
  bool talks() const { return !host_ || host_->rank() == 0; }
  Meeting meet_all(Leave why);
  void on_root(const std::function<void()>& work);
  void pull(const std::vector<at::Tensor>& weights);
  Leave train_step(const std::function<bool()>& stop);
  void push(double learning_rate, StepMetrics& metrics);
  void report(StepMetrics metrics, const std::vector<double>& sums, double count);
  Leave leave(const std::function<bool()>& stop) const;
  void save(const Meeting& meeting, parallel::ServerClient& client);

  RunConfig config_;
  comm::Communicator& world_;
  TrainObserver& observer_;
  ServerRanks servers_;
  std::unique_ptr<comm::Communicator> self_;  // a group of this rank
  RunConfig alone_;                           // config_ for one rank, which has the whole model
  mesh::DeviceMesh mesh_;                     // of this rank
  std::optional<mesh::DeviceMesh> workers_;   // on workers
  Callbacks callbacks_;                       // none
  TrainingState state_;
  Saves saves_;
  std::optional<RunFolder> output_;  // rank 0
  std::optional<Places> places_;
  std::optional<Resumption> resumption_;
  std::optional<dataset::BatchReader> batches_;
  StepReports reports_;
  std::unique_ptr<comm::Communicator> host_;  // the workers of this host; null without host_sums
  std::unique_ptr<parallel::ServerClient> client_;
  std::optional<parallel::HostSums> host_sums_;
  std::shared_ptr<PulledRows> pulled_;  // on workers, if the model has tables
  std::shared_ptr<OwnedRows> owned_;    // on servers, if the model has tables
  int64_t num_dense_ = 0;               // dense parameters; tables are numbered after them
  int64_t first_step_ = 0;              // steps finished before this start
  int64_t step_ = 0;                    // steps finished
  int64_t first_update_ = 0;            // updates of the optimizer before this start
  std::vector<at::Tensor> held_;        // gradients that are being pushed
};

}  // namespace trireme::train::inline internal
