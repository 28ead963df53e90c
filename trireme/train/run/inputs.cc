#include "trireme/train/run/inputs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/machine.h"
#include "trireme/comm/known_losses.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/compute_device.h"
#include "trireme/train/run/memory_check.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

void make_output_folder(const RunConfig& config) {
  const fs::path folder = config.output.folder;
  std::string reason;
  try {
    make_folders(folder);
  } catch (const Error& error) {
    reason = concat(": ", error.what());
  }
  const bool writable = reason.empty() && ::access(folder.c_str(), W_OK | X_OK) == 0;
  TRIREME_CHECK(writable, "output.folder ", folder.string(), " cannot be written", reason,
                "; choose another with --output.folder=PATH");
}

void check_last_batch(const RunConfig& config) {
  const int64_t size = config.task->training().size();
  TRIREME_CHECK(
      config.data.last_batch != dataset::LastBatch::kDrop || size >= config.train.global_batch,
      "data.last_batch is \"drop\" and the training data has ", size,
      " samples, fewer than train.global_batch = ", config.train.global_batch,
      "; lower train.global_batch, or keep the last batch");
}

}  // namespace

void open_inputs(RunConfig& config, int num_ranks, int num_local_ranks) {
  TRIREME_CHECK(!config.parallel.automatic,
                "parallel.auto is true, and a Trainer does not choose its layout: the command "
                "`train` does before; set it to false");
  resolve(config, num_ranks);
  config.task->open(config.train.evaluate_interval > 0);
  check_callbacks(config);
  check_device(config);
  if (config.device.is_cpu()) check_memory(config, num_local_ranks, machine_memory_bytes());
  check_last_batch(config);
  check_layout(config);
  set_steps(config, {});
  make_output_folder(config);
}

void open_inputs_together(RunConfig& config, comm::Communicator& world,
                          const checkpoint::OnWait& on_wait) {
  const auto open = [&](const checkpoint::Peers&) {
    try {
      open_inputs(config, world.size());
    } catch (...) {
      rethrow_with_memory_advice();
    }
  };
  checkpoint::run_or_throw(world, open, on_wait);
}

int64_t evaluation_samples(const RunConfig& config, const dataset::Source& validation) {
  return std::min(validation.size(), config.train.evaluate_sequences);
}

void preflight(RunConfig& config, int num_ranks) {
  config.device = rank_device(config.train.device, config.parallel.gpu_transport, 0, num_ranks);
  open_inputs(config, num_ranks, num_ranks);
  lock_output_folder(config);
}

std::unique_ptr<FolderLock> lock_output_folder(const RunConfig& config) {
  return std::make_unique<FolderLock>(config.output.folder, std::chrono::seconds(2));
}

dataset::BatchOptions training_batches(const RunConfig& config, const mesh::DeviceMesh& mesh,
                                       const DataPosition& start) {
  const mesh::Position place = mesh.position(mesh::axes_where(
      [](const mesh::AxisKind& kind) { return kind.tokens == mesh::Tokens::kOtherSamples; }));
  // Each learner has a contiguous part of a step's samples, whatever its own layout.
  return {.global_batch = config.train.global_batch,
          .micro_batch = config.train.micro_batch,
          .data_rank = config.learner * place.count + place.index,
          .data_size = static_cast<int>(config.parallel.learners) * place.count,
          .first_step = start.step,
          .first_sample = start.sample,
          .uneven = config.train.uneven_batches,
          .seed = config.data.seed,
          .last_batch = config.data.last_batch,
          .most_replaced = config.data.skip_bad_samples,
          .in_turn = config.takes_turns(),
          .first_batch = config.train.batch_ramp_start,
          .ramp_steps = config.train.batch_ramp_steps,
          .shares = config.shares};
}

dataset::BatchOptions validation_batches(const RunConfig& config, const mesh::DeviceMesh& mesh,
                                         int64_t num_samples) {
  dataset::BatchOptions options = training_batches(config, mesh, {});
  // Learners may have different weights, so each evaluates them on all samples.
  options.data_size /= static_cast<int>(config.parallel.learners);
  options.data_rank %= options.data_size;
  options.global_batch = num_samples;
  options.first_batch = options.ramp_steps = 0;
  options.in_turn = false;
  options.shares.clear();
  options.uneven = true;
  options.shuffle = false;
  options.last_batch = dataset::LastBatch::kFill;
  return options;
}

void set_steps(RunConfig& config, const DataPosition& start) {
  if (config.train.epochs == 0) return;
  const dataset::Source& source = config.task->training();
  // Steps do not depend on how their samples are divided.
  const dataset::BatchLoader batches(source, {.global_batch = config.train.global_batch,
                                              .micro_batch = 1,
                                              .first_step = start.step,
                                              .first_sample = start.sample,
                                              .last_batch = config.data.last_batch,
                                              .first_batch = config.train.batch_ramp_start,
                                              .ramp_steps = config.train.batch_ramp_steps});
  const auto samples = std::llround(config.train.epochs * static_cast<double>(source.size()));
  const std::optional<int64_t> steps =
      batches.first_step_from(std::max<int64_t>(samples, 1), kMaxSteps);
  TRIREME_CHECK(steps, "train.epochs is ", config.train.epochs, " and the data has ", source.size(),
                " samples, which takes more than ", kMaxSteps,
                " steps; lower train.epochs, or raise train.global_batch");
  config.train.steps = *steps;
}

dataset::BatchReaderOptions read_ahead(const RunConfig& config, comm::Communicator& world,
                                       int64_t num_steps) {
  return {.num_workers = static_cast<int>(config.data.workers),
          .num_ahead = config.data.ahead,
          .num_steps = num_steps,
          .device = config.device,
          .on_wait = [&world] { comm::check_peers(world, "data"); }};
}

}  // namespace trireme::train
