// A run with parameter servers: its last ranks own the parameters and apply the optimizer, the
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
#include "trireme/parallel/server/director.h"
#include "trireme/parallel/server/parameter_server.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/server/meeting.h"
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

  // As Trainer::run(). Without staleness the workers' losses and weights have the bits of data
  // parallelism over as many ranks.
  // Collective: every rank
  Outcome run(const std::function<bool()>& stop);

 private:
  bool is_root() const { return world_.rank() == 0; }
  bool is_server() const { return world_.rank() >= num_workers_; }
  bool is_synchronous() const { return config_.parallel.staleness == 0; }
  void start_output();
  void start_servers();
  std::filesystem::path log_path(int64_t server) const;
  Outcome serve();
  Outcome work(const std::function<bool()>& stop);
  Leave train_step(const std::function<bool()>& stop);
  void push(double learning_rate, StepMetrics& metrics);
  void report(StepMetrics metrics, const std::vector<double>& sums, double count);
  Leave leave(const std::function<bool()>& stop) const;
  void save(const Meeting& meeting, parallel::ServerClient& client);
  Outcome end_together(Outcome outcome, const parallel::StalenessCounts& staleness);

  RunConfig config_;
  RunConfig alone_;  // the same for one rank: each has the whole model
  comm::Communicator& world_;
  TrainObserver& observer_;
  int num_workers_;
  std::unique_ptr<comm::Communicator> self_;  // a group of this rank
  std::unique_ptr<comm::Communicator> role_;  // all workers, or all servers
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
  parallel::ServerRun servers_;
  std::unique_ptr<parallel::Director> director_;  // rank 0
  std::string address_;                           // the director's
  std::unique_ptr<parallel::ParameterServer> server_;
  std::unique_ptr<parallel::ServerClient> client_;
  int64_t first_step_ = 0;        // finished before this start
  int64_t step_ = 0;              // finished
  int64_t first_update_ = 0;      // of the optimizer, before this start
  std::vector<at::Tensor> held_;  // gradients that are being pushed
};

}  // namespace trireme::train::inline internal
