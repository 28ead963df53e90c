#include <memory>
#include <utility>

#include "trireme/model/family/family.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/plan/cost/layer_costs.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {

double teacher_flops_per_token(const LanguageConfig& own) {
  if (!own.teacher) return 0;
  model::ModelConfig model = own.teacher->model;
  model.sequence_length = own.model.sequence_length;  // that of the run's samples
  return model::flops_per_token(model) / 3;
}

plan::Workload workload_of(const train::RunConfig& config, const LanguageConfig& own) {
  const train::ParallelConfig& parallel = config.parallel;
  plan::Workload work;
  work.set_model(own.model);
  const model::ModelPlan parameters = model::make_plan(own.model);
  work.sizes = train::number_sizes(config, own.model.width)
                   .with_share(train::trained_share(config, parameters.parameters()));
  work.sizes.kept_share = train::kept_share(config, parameters.parameters());
  work.axes = train::plan_axes(parallel);
  const int64_t sequences = own.sequences_per_sample();
  work.global_batch = sequences * config.train.global_batch;
  work.smallest_batch = sequences * config.train.batch_ramp_start;
  work.micro_batch = sequences * config.largest_micro_batch();
  work.reproducible = config.train.reproducible;
  if (parallel.gradient_order != train::GradientOrder::kAuto) {
    work.rank_first = parallel.gradient_order == train::GradientOrder::kRankFirst;
  }
  work.zero = parallel.zero;
  work.gathered_units = parallel.gathered_units;
  work.sequence_parallel = parallel.sequence_parallel;
  work.overlap = config.train.overlap;
  work.hides_tensor = parallel.async_tensor == train::AsyncTensor::kOn;
  work.schedule = parallel.schedule;
  work.stages_per_rank = parallel.stages_per_rank;
  work.bucket_bytes = config.train.bucket_bytes;
  work.expert_chunk = parallel.expert_chunk;
  work.expert_replicas = parallel.expert_replicas;
  work.separate_documents = own.data.separate_documents;
  work.recompute_kind = config.train.recompute;
  work.recompute = config.recompute_plan();
  work.input_offload_rate =
      config.leaves_memory(config.offload.activations) ? plan::kUnknownRate : 0;
  work.kept_by_block = model::family_of(own.model).kept_by_block(config.dtype());
  work.kept_by_block.copies_keys = config.device.is_cuda();
  if (own.teacher) {
    plan::Workload teacher;
    teacher.set_model(own.teacher->model);
    work.teacher = std::make_shared<const plan::Workload>(std::move(teacher));
  }
  return work;
}

std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config,
                                             const LanguageConfig& own) {
  return plan::layer_costs(workload_of(config, own));
}

}  // namespace trireme::tasks
