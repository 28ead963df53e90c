#include "trireme/tasks/language/costs.h"

#include "trireme/model/family/family.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/plan/cost/layer_costs.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {

plan::Workload workload_of(const train::RunConfig& config, const LanguageConfig& own) {
  const train::ParallelConfig& parallel = config.parallel;
  plan::Workload work;
  work.set_model(own.model);
  work.sizes = train::number_sizes(config, own.model.width);
  work.axes = train::plan_axes(parallel);
  work.global_batch = config.train.global_batch;
  work.micro_batch = config.train.micro_batch;
  work.reproducible = config.train.reproducible;
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
  work.recompute = model::recompute_plan(config.train.recompute, config.train.recompute_modules);
  work.kept_by_block = model::family_of(own.model).kept_by_block(config.dtype());
  return work;
}

inline namespace internal {

std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config,
                                             const LanguageConfig& own) {
  return plan::layer_costs(workload_of(config, own));
}

}  // namespace internal
}  // namespace trireme::tasks
