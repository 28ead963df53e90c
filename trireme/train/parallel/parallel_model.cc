#include "trireme/train/parallel/parallel_model.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/tensor/weight_gradients.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train::inline internal {
namespace {

// Passes weight gradients that a stage's backward defers to the pipeline.
class Deferral : public parallel::WeightGradients {
 public:
  explicit Deferral(parallel::DeferredWork& work) : work_(work) {}
  bool defer(const at::Tensor& leaf, std::function<at::Tensor()> gradient) override {
    return work_.defer(leaf, std::move(gradient));
  }

 private:
  parallel::DeferredWork& work_;
};

parallel::DataGroups data_groups(const RunConfig& config, const mesh::DeviceMesh& mesh) {
  comm::Communicator& shard = shard_group_of(mesh);
  if (config.parallel.zero > 0) {
    return {shard, mesh.size("data") > 1 ? &mesh.group("data") : nullptr};
  }
  constexpr std::string_view kAxes[] = {"data", "context"};
  return {mesh.size("context") > 1 ? mesh.joined_group(kAxes) : mesh.group("data")};
}

parallel::DdpOptions ddp_options(const RunConfig& config, const model::LanguageModel& model,
                                 const model::ModelPlan& plan, int tensor_rank,
                                 std::shared_ptr<parallel::GradientHook> hook) {
  return {.zero = static_cast<int>(config.parallel.zero),
          .units = model.units(),
          .max_gathered_units = static_cast<int>(config.parallel.gathered_units),
          .bucket_bytes = config.train.bucket_bytes,
          .overlap = config.train.overlap,
          .symmetric = config.train.symmetric_memory,
          .reproducible = config.train.reproducible,
          .reduce_in_fp32 = config.train.reduce_dtype == ReduceDtype::kFp32,
          .whole_parameters = needs_whole_parameters(config.optimizer),
          .hook = std::move(hook),
          .outer_layout =
              [&plan, tensor_rank](const std::string& name) {
                return std::pair(plan.layout(name), tensor_rank);
              },
          .measure_squares = config.train.measure_noise};
}

parallel::Feed feed_of(const std::vector<dataset::Batch>& batches) {
  return [&batches](const std::string& edge, int64_t microbatch) {
    const dataset::Batch& batch = batches[static_cast<size_t>(microbatch)];
    if (edge == "documents") return batch.documents_BT;
    return edge == "tokens" ? batch.tokens_BT : batch.targets_BT;
  };
}

// One per microbatch; zeros on ranks without the last stage.
std::vector<double> losses_of(const parallel::PipelineResult& result, size_t count) {
  const auto found = result.outputs.find("loss");
  std::vector<double> sums;
  if (found == result.outputs.end()) return std::vector<double>(count, 0.0);
  for (const at::Tensor& loss : found->second) sums.push_back(loss.item<double>());
  return sums;
}

}  // namespace

ParallelModel::ParallelModel(const RunConfig& config, const mesh::DeviceMesh& mesh,
                             std::shared_ptr<parallel::GradientHook> hook,
                             std::shared_ptr<const bool> overlap)
    : mesh_(mesh),
      plan_(model::make_plan(config.model, mesh.size("tensor"))),
      layout_(pipeline_layout(config)),
      separates_documents_(config.data.separate_documents),
      weight_gradients_(std::make_unique<Deferral>(deferred_)) {
  for (const model::ParameterPlan& parameter : plan_.parameters()) names_.push_back(parameter.name);
  model::ModelAxes axes = model_axes(config, mesh_, std::move(overlap));
  axes.tensor.weight_gradients = weight_gradients_.get();
  axes.tensor.waiting = tensor_waiting_;
  axes.ring.waiting = context_waiting_;
  for (int stage = 0; stage < layout_.num_stages(); ++stage) {
    if (layout_.rank_of_stage[static_cast<size_t>(stage)] != mesh_.coordinate("pipeline")) continue;
    add_stage(config, stage, axes, hook);
  }
}

ParallelModel::~ParallelModel() = default;

void ParallelModel::add_stage(const RunConfig& config, int number, const model::ModelAxes& axes,
                              const std::shared_ptr<parallel::GradientHook>& hook) {
  Stage stage;
  stage.number = number;
  stage.model = model::make_model(config.model, config.train.seed, config.dtype(), axes,
                                  layout_.part(number));
  stage.model->set_recompute(
      model::recompute_plan(config.train.recompute, config.train.recompute_modules));
  stage.ddp = std::make_unique<parallel::DistributedDataParallel>(
      stage.model->module(), data_groups(config, mesh_),
      ddp_options(config, *stage.model, plan_, mesh_.coordinate("tensor"), hook));
  stage.model->run_units_with([ddp = stage.ddp.get()](size_t unit, const at::Tensor& x,
                                                      const parallel::UnitForward& forward) {
    return ddp->run(unit, x, forward);
  });
  std::ranges::copy(stage.ddp->shards(), std::back_inserter(shards_));
  stages_.push_back(std::move(stage));
}

ParallelModel::Stage* ParallelModel::find_stage(int number) {
  const auto found = std::ranges::find(stages_, number, &Stage::number);
  return found == stages_.end() ? nullptr : &*found;
}

// Tokens go to every stage, for their number, positions and documents. A tied head's weight comes
// from the embedding's stage, and its gradient goes back there.
std::vector<parallel::PipelineStage> ParallelModel::describe_stages() {
  std::vector<parallel::PipelineStage> result;
  const int last = layout_.num_stages() - 1;
  const bool sends_head = plan_.config().has_tied_head() && last > 0;
  for (int number = 0; number <= last; ++number) {
    parallel::PipelineStage stage;
    stage.name = concat("stage ", number);
    stage.inputs = {"tokens"};
    if (separates_documents_) stage.inputs.push_back("documents");
    if (number > 0) stage.inputs.push_back(concat("hidden ", number));
    if (number == last) stage.inputs.push_back("targets");
    if (number == last && sends_head) stage.inputs.push_back("head");
    stage.outputs.push_back(number == last ? "loss" : concat("hidden ", number + 1));
    if (number == 0 && sends_head) stage.outputs.push_back("head");
    if (const Stage* mine = find_stage(number)) {
      stage.forward = [this, model = mine->model.get(), inputs = stage.inputs, number, last](
                          int64_t microbatch, std::vector<at::Tensor> in) {
        const auto input = [&](std::string_view edge) {
          const auto found = std::ranges::find(inputs, edge);
          return found == inputs.end() ? at::Tensor() : in[found - inputs.begin()];
        };
        std::optional<model::TrainingPlace> training;
        if (!places_.empty()) training = places_[static_cast<size_t>(microbatch)];
        const model::PartOutput out =
            model->forward_part({.tokens_BT = input("tokens"),
                                 .hidden = input(concat("hidden ", number)),
                                 .documents_BT = input("documents"),
                                 .training = training});
        if (number < last) {
          std::vector<at::Tensor> outputs{out.hidden};
          if (out.head_weight.defined()) outputs.push_back(out.head_weight);
          return outputs;
        }
        return std::vector<at::Tensor>{
            model->head_loss(out.hidden, input("targets"), input("head")).sum};
      };
    }
    result.push_back(std::move(stage));
  }
  return result;
}

parallel::PipelineExecutor& ParallelModel::executor(int64_t num_microbatches) {
  std::unique_ptr<parallel::PipelineExecutor>& executor = executors_[num_microbatches];
  if (executor) return *executor;
  const parallel::Schedule schedule = layout_.schedule(num_microbatches);
  std::set<std::pair<int, int64_t>> split;  // (stage, microbatch) with a separate weight part
  for (const auto& actions : schedule.actions) {
    for (const parallel::Action& action : actions) {
      if (action.kind == parallel::ActionKind::kBackwardWeight)
        split.emplace(action.stage, action.microbatch);
    }
  }
  parallel::PipelineOptions options{.fed = {"tokens", "targets"}, .deferred = &deferred_};
  if (separates_documents_) options.fed.push_back("documents");
  options.around_backward = [this, split](int number, int64_t microbatch,
                                          const std::function<void()>& work) {
    parallel::DistributedDataParallel& ddp = *find_stage(number)->ddp;
    if (split.contains({number, microbatch})) {
      ddp.run_input_backward(microbatch, work);
    } else {
      ddp.run_backward(work);
    }
  };
  options.around_backward_weight = [this](int number, int64_t microbatch,
                                          const std::function<void()>& work) {
    find_stage(number)->ddp->run_weight_backward(microbatch, work);
  };
  executor = std::make_unique<parallel::PipelineExecutor>(
      mesh_.group("pipeline"), describe_stages(), schedule, std::move(options));
  return *executor;
}

int64_t ParallelModel::begin_step(const std::vector<dataset::Batch>& batches) {
  *tensor_waiting_ = {};
  *context_waiting_ = {};
  int64_t count = 0;
  for (const double targets : num_targets(batches)) count += static_cast<int64_t>(targets);
  for (Stage& stage : stages_) {
    global_count_ = stage.ddp->begin_step(count, std::ssize(batches));
  }
  return global_count_;
}

std::vector<double> ParallelModel::forward_backward(const std::vector<dataset::Batch>& batches,
                                                    double scale) {
  places_.clear();
  for (const dataset::Batch& batch : batches) {
    places_.push_back({.step = batch.step, .first_sequence = batch.first_sequence});
  }
  parallel::PipelineExecutor& pipeline = executor(std::ssize(batches));
  window_.begin_ns = monotonic_ns();
  parallel::PipelineResult result =
      pipeline.run(feed_of(batches), scale / static_cast<double>(global_count_));
  window_.end_ns = monotonic_ns();
  profile_ = std::move(result.profile);
  return losses_of(result, batches.size());
}

std::vector<double> ParallelModel::evaluate(const std::vector<dataset::Batch>& batches) {
  places_.clear();
  return losses_of(executor(std::ssize(batches)).evaluate(feed_of(batches)), batches.size());
}

std::vector<double> ParallelModel::num_targets(const std::vector<dataset::Batch>& batches) const {
  std::vector<double> counts;
  for (const dataset::Batch& batch : batches) {
    counts.push_back(static_cast<double>(stages_.front().model->num_targets(batch.targets_BT)));
  }
  return counts;
}

void ParallelModel::end_step() {
  for (Stage& stage : stages_) stage.ddp->end_step();
}

double ParallelModel::sum_over_batches(std::vector<double> mine) const {
  return train::sum_over_batches(mesh_, layout_.rank_of_stage.back(), std::move(mine));
}

std::vector<double> ParallelModel::gradient_squares() const {
  return train::gradient_squares(
      shards_, {.shard = shard_group_of(mesh_),
                .tensor = mesh_.size("tensor") > 1 ? &mesh_.group("tensor") : nullptr,
                .pipeline = mesh_.size("pipeline") > 1 ? &mesh_.group("pipeline") : nullptr,
                .parameters = names_});
}

std::vector<std::pair<std::string, at::Tensor>> ParallelModel::parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const Stage& stage : stages_) {
    for (const auto& item : stage.model->module().named_parameters()) {
      result.emplace_back(item.key(), item.value());
    }
  }
  return result;
}

std::chrono::nanoseconds ParallelModel::communication_time() const {
  std::chrono::nanoseconds time = profile_.waiting + *tensor_waiting_ + *context_waiting_;
  for (const Stage& stage : stages_) time += stage.ddp->communication_time();
  return time;
}

int64_t ParallelModel::gradient_bytes() const {
  int64_t bytes = 0;
  for (const Stage& stage : stages_) bytes += stage.ddp->gradient_bytes();
  return bytes;
}

double ParallelModel::microbatch_squares() const {
  double squares = 0;
  for (const Stage& stage : stages_) squares += stage.ddp->microbatch_squares();
  return squares;
}

parallel::DataParallelMemory ParallelModel::memory() const {
  parallel::DataParallelMemory sum;
  for (const Stage& stage : stages_) {
    const parallel::DataParallelMemory memory = stage.ddp->memory();
    sum.parameters += memory.parameters;
    sum.gradients += memory.gradients;
    sum.whole_gradients += memory.whole_gradients;
    sum.peak_gathered += memory.peak_gathered;
    sum.peak_in_transit += memory.peak_in_transit;
  }
  return sum;
}

}  // namespace trireme::train::inline internal
