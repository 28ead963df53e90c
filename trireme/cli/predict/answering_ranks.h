// Ranks that share a trained model to answer rows. The ranks of a copy of the model have parts of
// it, and copies answer other batches. Rank 0 has the rows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/frozen_model.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::cli {

// Not thread safe.
class AnsweringRanks {
 public:
  // config: from train::asked_config(), of a task of PredictingTask::make_answering(). Its
  // init.folder is the checkpoint; empty: the values of a new run
  // Collective: every rank of `world`, which outlives this
  // Throws:     as FrozenModel; ConfigError when this machine has no room for the weights
  AnsweringRanks(const train::RunConfig& config, comm::Communicator& world, train::Weights weights);

  // How many batches are answered at a time.
  size_t num_copies() const { return speakers_.size(); }

  // On rank 0: what the model says of up to num_copies() batches, in their order, on the CPU.
  // Comm:   the batches' bytes to every rank, that of the model's layers, and the outputs to rank 0
  // Throws: ConfigError when the batches have 1 GiB or more; CommError
  std::vector<at::Tensor> outputs(std::span<const dataset::Batch> batches);
  // On rank 0: there are no more batches, and serve() returns.
  void finish();
  // On any other rank: takes part in outputs() until finish().
  void serve();

 private:
  std::vector<at::Tensor> answer(std::span<const dataset::NamedTensors> batches);

  comm::Communicator& world_;
  mesh::DeviceMesh mesh_;
  train::FrozenModel model_;
  std::vector<size_t> speakers_;  // by copy: the rank that has its outputs
  size_t copy_;                   // this rank's
};

}  // namespace trireme::cli
