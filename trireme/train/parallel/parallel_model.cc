// Length: one class, the stages of a rank and their step.
#include "trireme/train/parallel/parallel_model.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/machine/memory_ledger.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/model/layers/batch_norm.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/tensor/tensor_axis.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/batch_feed.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {
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
  const std::vector<std::string_view> axes = replica_axes(config.parallel.zero);
  comm::Communicator& replicas = group_of(mesh, axes, "data");
  if (config.parallel.zero == 0) return {replicas};
  return {shard_group_of(mesh), replicas.size() > 1 ? &replicas : nullptr};
}

using LayoutOf = std::function<std::pair<mesh::Layout, int>(const std::string& name)>;

// Null: with the parameters.
std::shared_ptr<parallel::PartMemory> part_memory(const RunConfig& config, OffloadPlace place,
                                                  const std::string& content) {
  if (!config.leaves_memory(place)) return nullptr;
  if (place == OffloadPlace::kHost) return parallel::make_host_parts();
  return parallel::make_mapped_parts(config.offload_folder(), "this rank's " + content);
}

parallel::DdpOptions ddp_options(const RunConfig& config, StageModel& model, LayoutOf outer_layout,
                                 std::shared_ptr<parallel::GradientHook> hook) {
  return {
      .zero = static_cast<int>(config.parallel.zero),
      .units = model.units(),
      .max_gathered_units = static_cast<int>(config.parallel.gathered_units),
      .bucket_bytes = config.train.bucket_bytes,
      .overlap = config.train.overlap,
      .symmetric = config.train.symmetric_memory,
      .rank_first = config.is_rank_first(),
      .add_in_fp32 = config.adds_in_fp32(),
      .reproducible = config.train.reproducible,
      .reduce_in_fp32 = config.train.reduce_dtype == ReduceDtype::kFp32,
      .whole_parameters = needs_whole_parameters(config.optimizer),
      .hook = std::move(hook),
      .weights_home = part_memory(config, config.offload.parameters, "weights"),
      .gradients_home = part_memory(config, config.offload.gradients, "gradients"),
      .initialise = [&model](std::span<const parallel::Shard> shards) { model.initialise(shards); },
      .outer_layout = std::move(outer_layout),
      .measure_squares = config.train.measure_noise};
}

// The tensors that `list` names in the modules of all stages.
template <typename Stages, typename List>
std::vector<std::pair<std::string, at::Tensor>> tensors_of(const Stages& stages, List list) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& stage : stages) {
    for (const auto& item : list(stage.model->module())) {
      result.emplace_back(item.key(), item.value());
    }
  }
  return result;
}

}  // namespace

ParallelModel::ParallelModel(const RunConfig& config, const mesh::DeviceMesh& mesh,
                             std::shared_ptr<parallel::GradientHook> hook,
                             std::shared_ptr<const bool> overlap)
    : mesh_(mesh),
      expert_mesh_(config.parallel.expert > 1 ? std::make_unique<mesh::DeviceMesh>(
                                                    mesh.world(), expert_mesh_axes(config.parallel))
                                              : nullptr),
      config_(config),
      traits_(config.task->model().traits()),
      layout_(pipeline_layout(config)),
      weight_gradients_(std::make_unique<Deferral>(deferred_)) {
  std::vector<model::ParameterPlan> plan = config.task->model().parameters(
      {.tensor = mesh.size("tensor"), .expert = static_cast<int>(config.parallel.expert)});
  frozen_ = frozen_parameters(config, plan);
  if (!frozen_.empty()) traits_.flops_per_sample = config.task->model().flops_per_sample(config);
  for (model::ParameterPlan& parameter : plan) {
    if (!frozen_.contains(parameter.name))
      num_trained_ += c10::multiply_integers(parameter.layout.whole_shape());
    names_.push_back(parameter.name);
    parameter_layouts_.emplace(parameter.name, std::move(parameter.layout));
  }
  for (const Metric& metric : config.task->traits().metrics)
    num_sums_ += static_cast<size_t>(metric.size);
  model::ModelAxes axes = model_axes(config, mesh_, std::move(overlap));
  axes.tensor.weight_gradients = weight_gradients_.get();
  const auto waiting_on = [this](std::string_view axis) {
    return waiting_[axis] = std::make_shared<std::chrono::nanoseconds>(0);
  };
  axes.tensor.waiting = waiting_on("tensor");
  axes.ring.waiting = waiting_on("context");
  axes.batch.waiting = waiting_on("data");
  if (expert_mesh_) {
    axes.expert.group = &expert_mesh_->group("expert");
    expert_hosts_ = comm::split_by_host(*axes.expert.group, comm::host_identity());
  }
  axes.expert.within_host = expert_hosts_.within.get();
  axes.expert.between_hosts = expert_hosts_.between.get();
  axes.expert.waiting = waiting_on("expert");
  for (int stage = 0; stage < layout_.num_stages(); ++stage) {
    if (layout_.rank_of_stage[static_cast<size_t>(stage)] != mesh_.coordinate("pipeline")) continue;
    add_stage(stage, axes, hook);
  }
  check_plan();
}

ParallelModel::~ParallelModel() = default;

const mesh::Layout& ParallelModel::layout_of(const std::string& parameter) const {
  const auto found = parameter_layouts_.find(parameter);
  TRIREME_CHECK(found != parameter_layouts_.end(), "the model has a parameter \"", parameter,
                "\" that the task's plan does not name; add it to Task::parameters()");
  return found->second;
}

std::pair<mesh::Layout, int> ParallelModel::place_of(const std::string& parameter) const {
  const mesh::Layout& layout = layout_of(parameter);
  const int expert = expert_mesh_ ? expert_mesh_->coordinate("expert") : 0;
  return {layout, model::rank_in(layout, {mesh_.coordinate("tensor"), expert})};
}

// A parameter of the plan is in one stage. That the stages have no other parameters, layout_of()
// finds.
void ParallelModel::check_plan() const {
  std::string mine;
  for (const parallel::Shard& shard : shards_) mine += shard.name + '\n';
  std::map<std::string, int> count;
  for (const std::string& names : comm::all_gather_strings(mesh_.group("pipeline"), mine)) {
    TextReader lines(names);
    for (std::string name; std::getline(lines, name);) ++count[name];
  }
  for (const std::string& name : names_) {
    TRIREME_CHECK(count[name] == 1, "the task's plan names the parameter \"", name, "\", and ",
                  count[name] == 0 ? "no stage has it; remove it from Task::parameters()"
                                   : "several stages have it; each could train a value of its own");
  }
}

bool ParallelModel::is_expert(const std::string& name) const {
  const auto found = parameter_layouts_.find(name);
  return expert_mesh_ != nullptr && found != parameter_layouts_.end() &&
         found->second.axes().front().name == "expert";
}

// Data ranks of DDP and replicas hold every part again. Context ranks do so without ZeRO, and
// tensor ranks where the tensor axis splits nothing.
bool ParallelModel::counts(const parallel::Shard& shard) const {
  const mesh::Layout& layout = shard.layout;
  // Experts are on every rank of both axes, with other ones on each.
  if (is_expert(shard.name)) return layout.num_ranks() > 1 || expert_mesh_->coordinate("data") == 0;
  const bool is_first_holder = layout.num_ranks() > 1 || shard_group_of(mesh_).rank() == 0;
  const mesh::Layout& cut = *layout.outer();  // may leave all to a rank that is not the first
  const bool is_first_of_cut = cut.owner(layout.outer_rank()) == layout.outer_rank();
  return mesh_.position(replica_axes(/*zero=*/1)).index == 0 && is_first_holder && is_first_of_cut;
}

void ParallelModel::add_stage(int number, const model::ModelAxes& axes,
                              const std::shared_ptr<parallel::GradientHook>& hook) {
  const MemoryScope scope(MemoryKind::kWeights);
  Stage stage;
  stage.number = number;
  model::ModelPart part = layout_.part(number);
  // A rank that will own parts of the parameters never has one whole, if the task can do that.
  if (config_.parallel.zero > 0) part.without_memory = config_.device;
  stage.model = config_.task->model().make_stage({config_, axes, part, number});
  stage.model->module().to(config_.device);
  for (const auto& item : stage.model->module().named_parameters()) {
    if (frozen_.contains(item.key())) item.value().set_requires_grad(false);
  }
  const auto outer_layout = [this](const std::string& name) { return place_of(name); };
  stage.ddp = std::make_unique<StageDdp>(
      stage.model->module(), data_groups(config_, mesh_),
      expert_mesh_ ? &expert_mesh_->group("data") : nullptr,
      [this](const std::string& name) { return is_expert(name); },
      ddp_options(config_, *stage.model, outer_layout, hook));
  stage.model->run_units_with([ddp = stage.ddp.get()](size_t unit, const at::Tensor& x,
                                                      const parallel::UnitForward& forward) {
    return ddp->run(unit, x, forward);
  });
  std::ranges::copy(stage.ddp->shards(), std::back_inserter(shards_));
  if (const StageTables tables = stage.model->tables(); tables.tables) tables_.push_back(tables);
  for (model::BatchNormImpl* const norm : model::batch_norms_of(stage.model->module())) {
    for (const at::Tensor& statistic : norm->buffers()) statistics_.push_back({statistic});
  }
  stages_.push_back(std::move(stage));
}

ParallelModel::Stage* ParallelModel::find_stage(int number) {
  const auto found = std::ranges::find(stages_, number, &Stage::number);
  return found == stages_.end() ? nullptr : &*found;
}

std::vector<parallel::PipelineStage> ParallelModel::describe_stages() {
  std::vector<parallel::PipelineStage> result;
  const std::vector<StageEdges> edges = config_.task->model().edges_of(layout_.parts());
  for (int number = 0; number < layout_.num_stages(); ++number) {
    const StageEdges& own = edges[static_cast<size_t>(number)];
    parallel::PipelineStage stage;
    stage.name = concat("stage ", number);
    stage.inputs = own.inputs;
    stage.outputs = own.outputs;
    if (const Stage* mine = find_stage(number)) {
      stage.forward = [this, number, model = mine->model.get(), ddp = mine->ddp.get(),
                       names = own.inputs](int64_t microbatch, std::vector<at::Tensor> in) {
        ddp->begin_forward(microbatch);
        StageInput input;
        for (size_t i = 0; i < names.size(); ++i) {
          input.tensors.emplace_back(names[i], std::move(in[i]));
        }
        if (!places_.empty()) input.training = places_[static_cast<size_t>(microbatch)];
        std::optional<verify::ProbeScope> scope;
        if (!probed_.empty()) scope.emplace(probed_[static_cast<size_t>(microbatch)].at(number));
        return model->forward(input);
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
  parallel::PipelineOptions options{
      .fed = inputs_of_batch(config_.task->model().edges_of(layout_.parts())),
      .loss = config_.is_frozen ? "" : "loss",
      .deferred = &deferred_,
      .device = config_.device};
  options.around_backward = [this, split](int number, int64_t microbatch,
                                          const std::function<void()>& work) {
    StageDdp& ddp = *find_stage(number)->ddp;
    if (split.contains({number, microbatch})) {
      ddp.run_input_backward(microbatch, work);
    } else {
      ddp.run_backward(work, microbatch);
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
  for (const auto& [axis, waiting] : waiting_) *waiting = {};
  if (teacher_) teacher_waited_before_ = teacher_->communication_time();
  if (remote_teacher_) remote_teacher_->begin_step();
  for (Statistic& each : statistics_) each.before = each.now.clone();
  int64_t count = 0;
  for (const double terms : num_terms(batches)) count += static_cast<int64_t>(terms);
  for (Stage& stage : stages_) {
    global_count_ = stage.ddp->begin_step(count, std::ssize(batches));
  }
  return global_count_;
}

void ParallelModel::use_teacher(std::shared_ptr<ParallelModel> teacher) {
  teacher_ = std::move(teacher);
  Stage* const mine = find_stage(layout_.num_stages() - 1);
  Stage* const last = teacher_->find_stage(teacher_->layout_.num_stages() - 1);
  TRIREME_ASSERT((mine == nullptr) == (last == nullptr), "last stages on different ranks");
  if (mine != nullptr) mine->model->use_teacher(*last->model);
}

void ParallelModel::use_teacher(std::shared_ptr<RemoteTeacher> teacher) {
  remote_teacher_ = std::move(teacher);
  if (!remote_teacher_->reads()) return;
  find_stage(layout_.num_stages() - 1)->model->use_teacher_head(remote_teacher_->head());
}

// The batches with the teacher's outputs, where the last stage is.
std::vector<dataset::Batch> ParallelModel::taught(std::vector<dataset::Batch> batches) const {
  std::map<std::string, std::vector<at::Tensor>> found;
  if (teacher_) found = teacher_->outputs(batches);
  if (remote_teacher_) found[remote_teacher_->output()] = remote_teacher_->outputs(batches);
  for (auto& [name, tensors] : found) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      batches[i].tensors.emplace_back(name, std::move(tensors[i]));
    }
  }
  return batches;
}

std::vector<double> ParallelModel::forward_backward(const std::vector<dataset::Batch>& given,
                                                    double scale) {
  const MemoryScope scope(MemoryKind::kActivations);
  if (remote_teacher_) {  // which goes on with the next step during this one
    remote_teacher_->ask(given);
    remote_teacher_->ask(next_batches_);
  }
  const std::vector<dataset::Batch> batches = taught(given);
  in_turn_ = config_.takes_turns();
  const model::StoresInputs stores(input_store_);
  clear_places();
  for (const dataset::Batch& batch : batches) {
    places_.push_back({.step = batch.step,
                       .first_sample = batch.first_sample,
                       .num_samples = batch.step_size / num_parts_of_step_,
                       .gradient_scale = scale});
    if (probes_ != nullptr) probed_.push_back(probed_batch(batch, config_, probes_, scale));
  }
  parallel::PipelineExecutor& pipeline = executor(std::ssize(batches));
  const std::vector<dataset::Batch> next = std::exchange(next_batches_, {});
  for (Stage& stage : stages_) {
    stage.model->begin_batches(batches);
    if (!next.empty()) stage.model->announce_batches(next);
  }
  window_.begin_ns = monotonic_ns();
  parallel::PipelineResult result =
      pipeline.run(feed_of(batches, config_.device), scale / static_cast<double>(global_count_));
  for (Stage& stage : stages_) stage.model->end_backward();
  window_.end_ns = monotonic_ns();
  profile_ = std::move(result.profile);
  return sums_of_outputs(result.outputs, batches.size(), num_sums_);
}

std::map<std::string, std::vector<at::Tensor>> ParallelModel::outputs(
    const std::vector<dataset::Batch>& given) {
  const MemoryScope scope(MemoryKind::kActivations);
  const std::vector<dataset::Batch> batches = taught(given);
  in_turn_ = false;
  clear_places();
  const at::NoGradGuard guard;
  for (Stage& stage : stages_) stage.model->begin_batches(batches);
  parallel::PipelineResult result =
      executor(std::ssize(batches)).evaluate(feed_of(batches, config_.device));
  if (config_.is_frozen) profile_.waiting += result.profile.waiting;
  return std::move(result.outputs);
}

std::vector<double> ParallelModel::evaluate(const std::vector<dataset::Batch>& batches) {
  return sums_of_outputs(outputs(batches), batches.size(), num_sums_);
}

std::vector<at::Tensor> ParallelModel::scores(const std::vector<dataset::Batch>& batches) {
  const auto all = outputs(batches);
  std::vector<at::Tensor> scores;
  const auto found = all.find("scores");
  if (found == all.end()) return scores;
  for (const at::Tensor& each : found->second) {
    scores.push_back(each.to(at::kCPU, at::kDouble));
  }
  return scores;
}

std::vector<double> ParallelModel::finish_evaluation() {
  std::vector<double> metrics;
  for (Stage& stage : stages_) {
    std::ranges::copy(stage.model->finish_evaluation(), std::back_inserter(metrics));
  }
  return metrics;
}

std::vector<double> ParallelModel::num_terms(const std::vector<dataset::Batch>& batches) const {
  std::vector<double> counts;
  for (const dataset::Batch& batch : batches) {
    counts.push_back(static_cast<double>(stages_.front().model->num_terms(batch)));
  }
  return counts;
}

void ParallelModel::undo_statistics() {
  for (const Statistic& each : statistics_) each.now.copy_(each.before);
}

std::vector<double> ParallelModel::sum_counts() {
  const int64_t size = traits_.num_counts;
  std::vector<double> counts(static_cast<size_t>(size));
  if (size == 0) return counts;
  for (Stage& stage : stages_) stage.model->take_counts(counts);
  const at::Tensor sums = at::from_blob(counts.data(), {size}, at::kDouble);
  mesh_.world().all_reduce(sums)->wait();
  return counts;
}

void ParallelModel::use_counts(std::span<const double> counts) {
  if (counts.empty()) return;
  for (Stage& stage : stages_) stage.model->use_counts(counts);
}

void ParallelModel::spread_weights() {
  for (Stage& stage : stages_) stage.ddp->spread_weights();
}

void ParallelModel::end_step() {
  for (Stage& stage : stages_) stage.ddp->end_step();
}

std::vector<double> ParallelModel::sums_over_batches(std::vector<double> mine) const {
  return train::sums_over_batches(mesh_, layout_.rank_of_stage.back(), std::move(mine), num_sums_,
                                  in_turn_);
}

double ParallelModel::sum_over_batches(std::vector<double> mine) const {
  return train::sum_over_batches(mesh_, layout_.rank_of_stage.back(), std::move(mine));
}

std::vector<double> ParallelModel::gradient_squares() const {
  std::vector<parallel::Shard> others, experts;
  for (const parallel::Shard& shard : shards_) {
    (is_expert(shard.name) ? experts : others).push_back(shard);
  }
  comm::Communicator& cutting = group_of(mesh_, cutting_axes(), "tensor");
  std::vector<NormPart> parts = {
      {others, shard_group_of(mesh_), cutting.size() > 1 ? &cutting : nullptr}};
  constexpr std::string_view kSplit[] = {"expert", "tensor"};
  if (expert_mesh_) {
    parts.push_back({experts, expert_mesh_->group("data"), &expert_mesh_->joined_group(kSplit)});
  }
  return train::gradient_squares(
      parts, mesh_.size("pipeline") > 1 ? &mesh_.group("pipeline") : nullptr, names_);
}

std::vector<std::pair<std::string, at::Tensor>> ParallelModel::parameters() const {
  return tensors_of(stages_, [](const auto& module) { return module.named_parameters(); });
}

std::vector<std::pair<std::string, at::Tensor>> ParallelModel::buffers() const {
  return tensors_of(stages_, [](const auto& module) { return module.named_buffers(); });
}

std::map<std::string_view, std::chrono::nanoseconds> ParallelModel::communication_by_axis() const {
  std::map<std::string_view, std::chrono::nanoseconds> times{{"pipeline", profile_.waiting}};
  for (const auto& [axis, waiting] : waiting_) times[axis] += *waiting;
  for (const Stage& stage : stages_) times["data"] += stage.ddp->communication_time();
  return times;
}

std::chrono::nanoseconds ParallelModel::communication_time() const {
  std::chrono::nanoseconds time{0};
  for (const auto& [axis, waiting] : communication_by_axis()) time += waiting;
  if (teacher_) time += teacher_->communication_time() - teacher_waited_before_;
  if (remote_teacher_) time += remote_teacher_->waited();
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
  for (const Stage& stage : stages_) sum += stage.ddp->memory(config_.microbatches_per_step());
  return sum;
}

}  // namespace trireme::train
