// Which samples of a run's data this rank reads.
#pragma once

#include <cstdint>

#include "trireme/dataset/batch_reader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// Where a resumed run continues.
struct DataPosition {
  int64_t step = 0;    // finished steps
  int64_t sample = 0;  // the next one, over all ranks
};

dataset::BatchOptions training_batches(const RunConfig& config, const mesh::DeviceMesh& mesh,
                                       const DataPosition& start);
// One step that holds the whole evaluation, in the order of the data.
dataset::BatchOptions validation_batches(const RunConfig& config, const mesh::DeviceMesh& mesh);

dataset::BatchReaderOptions read_ahead(const RunConfig& config, int64_t num_steps);

}  // namespace trireme::train::inline internal
