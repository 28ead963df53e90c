#include "trireme/train/run/batches.h"

#include "trireme/train/run/inputs.h"

namespace trireme::train::inline internal {

dataset::BatchOptions training_batches(const RunConfig& config, const mesh::DeviceMesh& mesh,
                                       const DataPosition& start) {
  return {.global_batch = config.train.global_batch,
          .micro_batch = config.train.micro_batch,
          .data_rank = mesh.coordinate("data") * mesh.size("shard") + mesh.coordinate("shard"),
          .data_size = static_cast<int>(config.parallel.data),
          .first_step = start.step,
          .first_sample = start.sample,
          .uneven = config.train.uneven_batches,
          .seed = config.data.seed,
          .last_batch = config.data.last_batch,
          .most_replaced = config.data.skip_bad_samples};
}

dataset::BatchOptions validation_batches(const RunConfig& config, const mesh::DeviceMesh& mesh) {
  dataset::BatchOptions options = training_batches(config, mesh, {});
  options.global_batch = evaluation_samples(config);
  options.uneven = true;
  options.shuffle = false;
  options.last_batch = dataset::LastBatch::kFill;
  return options;
}

dataset::BatchReaderOptions read_ahead(const RunConfig& config, int64_t num_steps) {
  return {.num_workers = static_cast<int>(config.data.workers),
          .num_ahead = config.data.ahead,
          .num_steps = num_steps,
          .device = config.device};
}

}  // namespace trireme::train::inline internal
