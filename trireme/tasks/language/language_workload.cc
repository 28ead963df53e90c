#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/model/clip/image_input.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/trained_parts.h"
#include "trireme/plan/cost/layer_costs.h"
#include "trireme/tasks/language/costs/part_training.h"
#include "trireme/tasks/language/costs/seq2seq_costs.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {

namespace {

// Time is that of a token, as the blocks' is. The parameters are among the embedding's.
void add_images(parallel::LayerCost& first, const train::RunConfig& config,
                const LanguageConfig& own) {
  const model::ModelConfig& model = own.model;
  const double images = model.vision.images_per_sequence;
  for (const model::TrainedPart& part : trained_parts_of(config, model).images) {
    first.time += part.flops() / static_cast<double>(model.sequence_length);
  }
  const std::vector<model::ParameterPlan> parameters = model::make_plan(model).parameters();
  const std::set<std::string> frozen = train::frozen_parameters(config, parameters);
  const bool trains_tower = std::ranges::any_of(parameters, [&](const auto& parameter) {
    return parameter.name.find(model::kVisionTower) != std::string::npos &&
           !frozen.contains(parameter.name);
  });
  const auto num_images =
      static_cast<int64_t>(std::ceil(images * static_cast<double>(config.largest_micro_batch())));
  first.activations += model::kept_bytes_of_images(model,
                                                   {.num_images = num_images,
                                                    .dtype = config.dtype(),
                                                    .recompute = config.recompute_plan(),
                                                    .tensor = config.parallel.tensor},
                                                   trains_tower);
}

}  // namespace

double teacher_flops_per_token(const LanguageConfig& own) {
  if (!own.teacher) return 0;
  model::ModelConfig model = own.teacher->model;
  model.sequence_length = own.model.sequence_length;  // that of the run's samples
  return model::flops_per_token(model) / 3;
}

double sample_flops(const LanguageConfig& own, double of_sequence) {
  const auto T = static_cast<double>(own.model.sequence_length);
  return static_cast<double>(own.sequences_per_sample()) *
         (of_sequence + T * teacher_flops_per_token(own));
}

plan::Workload workload_of(const train::RunConfig& config, const LanguageConfig& own) {
  const train::ParallelConfig& parallel = config.parallel;
  plan::Workload work;
  work.set_model(own.model);
  const model::ModelPlan plan = model::make_plan(own.model);
  work.sizes = train::number_sizes(config, own.model.width)
                   .with_share(train::trained_share(config, plan.parameters()));
  work.sizes.kept_share = train::kept_share(config, plan.parameters());
  set_training(config, plan, work);
  work.axes = train::plan_axes(parallel);
  // A learner's part of them.
  const int64_t sequences = own.sequences_per_sample();
  work.global_batch = sequences * config.train.global_batch / parallel.learners;
  work.smallest_batch = sequences * config.train.batch_ramp_start / parallel.learners;
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
  work.separate_documents = own.has_documents();
  work.recompute_kind = config.train.recompute;
  work.recompute = config.recompute_plan();
  work.input_offload_rate =
      config.leaves_memory(config.offload.activations) ? plan::kUnknownRate : 0;
  work.kept_by_block = model::family_of(own.model).kept_by_block(own.model);
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
  if (own.model.has_decoder()) return seq2seq_costs(config, own.model);
  std::vector<parallel::LayerCost> costs = plan::layer_costs(workload_of(config, own));
  if (own.model.vision.is_on()) add_images(costs.front(), config, own);
  return costs;
}

}  // namespace trireme::tasks
