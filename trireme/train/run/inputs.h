// The inputs of a run, opened and checked before anything starts, and which of their samples this
// rank reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// Resolves the config for `num_ranks`, opens the data of its task, checks that `num_local_ranks` of
// them fit this machine's memory if they compute there, checks the layout, and makes the output
// folder. In this order, so a run that cannot start leaves nothing behind.
// Throws: ConfigError
void open_inputs(RunConfig& config, int num_ranks, int num_local_ranks = 1);

// open_inputs() on every rank. It may take long on one of them, and may fail there.
// Collective: every rank of `world`
// Throws:     on every rank what any of them throws; ConfigError with advice when memory is short
void open_inputs_together(RunConfig& config, comm::Communicator& world,
                          const checkpoint::OnWait& on_wait);

// The same checks without keeping anything open, and whether the output folder is free, as far as
// one process can check. For the launcher, before it starts ranks, all on this machine.
// Throws: ConfigError
void preflight(RunConfig& config, int num_ranks);

// Samples that one evaluation reads of such data; the same on every layout.
int64_t evaluation_samples(const RunConfig& config, const dataset::Source& validation);

// A lock that keeps other runs out of the run's folder. Waits a moment for a run that was killed.
// Throws: ConfigError when another run has the folder
std::unique_ptr<FolderLock> lock_output_folder(const RunConfig& config);

// The position at which a resumed run continues.
struct DataPosition {
  int64_t step = 0;    // finished steps
  int64_t sample = 0;  // the next one, over all ranks
};

dataset::BatchOptions training_batches(const RunConfig& config, const mesh::DeviceMesh& mesh,
                                       const DataPosition& start);
// One step that holds so many samples, in the order of the data.
dataset::BatchOptions validation_batches(const RunConfig& config, const mesh::DeviceMesh& mesh,
                                         int64_t num_samples);

// With train.epochs, sets train.steps to the number that ends them when a run goes on from `start`.
// Once the data is open.
// Throws: ConfigError when there are too many steps
void set_steps(RunConfig& config, const DataPosition& start);

// world: the ranks without which a batch is of no use; when one is known to be lost, a read that
// waits for a thread throws CommError. It outlives the reader.
dataset::BatchReaderOptions read_ahead(const RunConfig& config, comm::Communicator& world,
                                       int64_t num_steps);

}  // namespace trireme::train
