// The configs of models that are not trained, on the ranks of a run or on ranks of their own.
#include <memory>
#include <optional>
#include <utility>

#include "trireme/train/config/config.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::train {

RunConfig frozen_config(const RunConfig& run, std::unique_ptr<Task> task) {
  RunConfig frozen = run;
  frozen.task = std::move(task);
  frozen.is_frozen = true;
  // What is of gradients, of a trained model's parameters, or of its stages.
  frozen.train.freeze.clear();
  frozen.train.compression = parallel::Compression::kNone;
  frozen.train.gradient_sum = parallel::GradientSum::kSum;
  frozen.train.recompute = model::Recompute::kNone;
  frozen.train.recompute_blocks = 0;
  frozen.train.reproducible = frozen.train.measure_noise = false;
  frozen.optimizer = {};
  frozen.offload = {};
  frozen.parallel.gradient_order = GradientOrder::kMicrobatchFirst;
  frozen.parallel.stage_memory = 0;
  return frozen;
}

std::optional<RunConfig> teacher_config(const RunConfig& config) {
  if (config.parallel.teachers > 0) return std::nullopt;
  RunConfig run = config;
  std::unique_ptr<Task> task = config.task->make_teacher(run);
  if (!task) return std::nullopt;
  RunConfig teacher = frozen_config(run, std::move(task));
  teacher.parallel.stage_layers.clear();
  if (teacher.parallel.expert == 1) {
    teacher.parallel.expert_chunk = teacher.parallel.expert_replicas = 0;
  }
  return teacher;
}

std::optional<RunConfig> remote_teacher_config(const RunConfig& config) {
  if (config.parallel.teachers == 0) return std::nullopt;
  RunConfig run = config;
  const ParallelConfig none;
  for (const AxisKey& key : kAxisKeys) run.parallel.*key.size = none.*key.size;
  run.parallel.tensor = config.parallel.teacher_tensor;
  run.parallel.data = run.parallel.shard = 1;
  run.parallel.zero = 0;
  run.parallel.sequence_parallel = false;
  run.parallel.schedule = none.schedule;
  run.parallel.stages_per_rank = 0;
  run.parallel.expert_chunk = run.parallel.expert_replicas = 0;
  run.parallel.stage_layers.clear();
  run.shares.clear();
  std::unique_ptr<Task> task = config.task->make_teacher(run);
  if (!task) return std::nullopt;
  return frozen_config(run, std::move(task));
}

}  // namespace trireme::train
