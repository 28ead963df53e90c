// Length: the loop and everything it owns; each method is one decision of a run.
#include "trireme/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/seconds.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/parallel/gradient_compression.h"
#include "trireme/train/parallel/layout.h"
#include "trireme/train/parallel/overlap_choice.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/replica_check.h"
#include "trireme/train/parallel/stage_balance.h"
#include "trireme/train/resume.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/run/out_of_memory.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/state.h"
#include "trireme/train/step.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

OffloadOptions offload_options(const RunConfig& config) {
  const OffloadConfig& offload = config.offload;
  return {.place = offload.optimizer,
          .folder = offload.folder.empty() ? fs::path(config.output.folder) / "offload"
                                           : fs::path(offload.folder),
          .buffer_bytes = offload.buffer_bytes};
}

LossScale loss_scale(const TrainConfig& train) {
  if (train.precision != c10::kHalf) return {};
  return LossScale({.initial = train.loss_scale, .growth_interval = train.loss_scale_interval});
}

checkpoint::OnWait tell(TrainObserver& observer) {
  return [&observer](std::span<const int> ranks, std::chrono::milliseconds waited) {
    observer.on_wait(ranks, in_seconds(waited));
  };
}

// Opening may take long on one rank, and may fail there.
void open_inputs_together(RunConfig& config, comm::Communicator& world, TrainObserver& observer) {
  const auto open = [&](const checkpoint::Peers&) {
    try {
      open_inputs(config, world.size());
    } catch (...) {
      rethrow_with_memory_advice();
    }
  };
  checkpoint::run_or_throw(world, open, tell(observer));
}

}  // namespace

class Trainer::Impl {
 public:
  // `config` is resolved and its data is open.
  Impl(RunConfig config, comm::Communicator& world, TrainObserver& observer,
       const ProfileOptions& profile);
  Outcome run(const std::atomic<bool>& stop);

 private:
  bool is_root() const { return world_.rank() == 0; }
  fs::path folder() const { return config_.output.folder; }
  void build_model();
  std::string from_root(const std::function<std::string()>& produce);
  void on_root(const std::function<void()>& work);
  fs::path find_checkpoint();
  RunState load(const fs::path& checkpoint);
  bool is_due(int64_t interval) const { return interval > 0 && step_ % interval == 0; }
  Leave leave() const;
  Leave ask_again(Leave so_far);
  Leave train_step();
  void rebalance();
  dataset::BatchOptions batch_options(int64_t global_batch, const RunState& state,
                                      bool uneven) const;
  void start_output();
  void report(const std::optional<std::string>& finding);
  void save();
  void write_checkpoint(const fs::path& root);
  [[noreturn]] void leave_lost_folder();
  void profile_pipeline();
  bool finish_profile(bool run_ends);
  RunSummary summary() const;

  RunConfig config_;
  comm::Communicator& world_;
  TrainObserver& observer_;
  mesh::DeviceMesh mesh_;
  std::optional<RunFolder> output_;  // rank 0
  DataIdentity data_;
  DataIdentity validation_;  // unknown without evaluation
  std::optional<dataset::BatchLoader> batches_;
  std::shared_ptr<parallel::GradientHook> hook_;  // null without compression
  OverlapChoice overlap_;
  std::optional<ParallelModel> model_;
  std::optional<Optimizer> optimizer_;
  std::optional<StageBalance> balance_;  // if layers may move
  LossScale loss_scale_;
  BadSteps bad_steps_;
  GradientNoise noise_;
  std::optional<dataset::BatchLoader> validation_batches_;
  StepMetrics metrics_;  // of the last step
  std::optional<Profiler> profiler_;
  int64_t step_ = 0;                         // finished steps
  const std::atomic<bool>* stop_ = nullptr;  // while run() runs
  std::vector<std::string> resume_notes_;    // rank 0
  bool compression_restarted_ = false;
  bool tensor_crosses_hosts_ = false;
};

Trainer::Impl::Impl(RunConfig config, comm::Communicator& world, TrainObserver& observer,
                    const ProfileOptions& profile)
    : config_(std::move(config)),
      world_(world),
      observer_(observer),
      mesh_(world, mesh_axes(config_.parallel)),
      hook_(make_gradient_hook(config_.train)),
      overlap_(config_.parallel.tensor > 1 ? config_.parallel.async_tensor : AsyncTensor::kOff,
               world, {profile.recorder, "tensor", static_cast<int>(config_.parallel.tensor)}),
      loss_scale_(loss_scale(config_.train)),
      bad_steps_({.max_skipped = config_.train.skip_bad_steps,
                  .spike_factor = config_.train.spike_factor}) {
  on_root([this] {
    output_.emplace(folder(), lock_output_folder(config_),
                    [this](const fs::path& path) { config_.task->write_files(path); });
  });
  // Rank 0 owns the folder now. Before that it may have belonged to another run.
  observer_.on_folder();
  const fs::path checkpoint = find_checkpoint();
  if (mesh_.size("tensor") > 1) check_threads(at::get_num_threads(), mesh_.group("tensor"));
  if (config_.train.reproducible) check_sum_order(mesh_.group("tensor"));
  build_model();
  const RunState state = checkpoint.empty() ? RunState{} : load(checkpoint);
  step_ = state.step;
  batches_.emplace(config_.task->training(),
                   batch_options(config_.train.global_batch, state, config_.train.uneven_batches));
  if (const dataset::Source* const validation = config_.task->validation()) {
    auto options = batch_options(evaluation_samples(config_), {}, /*uneven=*/true);
    options.shuffle = false;
    validation_batches_.emplace(*validation, options);
  }
  if (profile.num_steps > 0) {
    check_profile(profile, step_ + 1, config_.train.steps);
    profiler_.emplace(profile, step_ + 1, world_);
  }
  start_output();
}

// Builds the model with the stages of config_, replacing an earlier one.
void Trainer::Impl::build_model() {
  optimizer_.reset();
  model_.reset();
  model_.emplace(config_, mesh_, hook_, overlap_.flag());
  // The optimizer's states may be a file that takes long to make.
  const auto make_optimizer = [this](const checkpoint::Peers&) {
    try {
      optimizer_.emplace(model_->shards(), config_.optimizer,
                         WeightOptions{.master_weights = config_.train.master_weights,
                                       .stochastic_rounding = config_.train.stochastic_rounding,
                                       .seed = config_.train.seed,
                                       .parameters = model_->parameter_names()},
                         offload_options(config_));
    } catch (...) {
      rethrow_with_memory_advice();
    }
  };
  checkpoint::run_or_throw(world_, make_optimizer, tell(observer_));
  if (config_.parallel.rebalance_interval > 0 && mesh_.size("pipeline") > 1) {
    balance_.emplace(model_->layout(), mesh_);
  }
}

dataset::BatchOptions Trainer::Impl::batch_options(int64_t global_batch, const RunState& state,
                                                   bool uneven) const {
  return {.global_batch = global_batch,
          .micro_batch = config_.train.micro_batch,
          .data_rank = mesh_.coordinate("data") * mesh_.size("shard") + mesh_.coordinate("shard"),
          .data_size = static_cast<int>(config_.parallel.data),
          .first_step = state.step,
          .first_sample = state.next_sample,
          .uneven = uneven,
          .seed = config_.data.seed};
}

// Runs on rank 0 what reads files, for all ranks. The others wait for it, and fail if it fails.
std::string Trainer::Impl::from_root(const std::function<std::string()>& produce) {
  return checkpoint::from_root(
      world_, [&](const checkpoint::Peers&) { return produce(); }, tell(observer_));
}

// The same for work without a result.
void Trainer::Impl::on_root(const std::function<void()>& work) {
  from_root([&] {
    work();
    return std::string();
  });
}

// Found once, so that all ranks load the same one. Empty: none.
fs::path Trainer::Impl::find_checkpoint() {
  const auto look = [this](const checkpoint::Peers&) {
    const Task& task = *config_.task;
    data_ = task.identify(task.training());
    if (task.validation() != nullptr) validation_ = task.identify(*task.validation());
  };
  checkpoint::run_or_throw(world_, look, tell(observer_));
  const std::string name = config_.task->data_name();
  require_same_data(data_, name, world_);
  if (validation_.is_known()) require_same_data(validation_, name + " (validation)", world_);
  return from_root([this] {
    ResumePoint point = find_resume_point(config_, data_, validation_);
    resume_notes_ = std::move(point.notes);
    return point.checkpoint.string();
  });
}

// Returns the state of a checkpoint, which may come from another layout. Fills in the tensors.
RunState Trainer::Impl::load(const fs::path& path) {
  auto entries = checkpoint_entries(model_->shards(), *optimizer_);
  auto residuals = compression_entries(hook_.get(), mesh_.axes());
  compression_restarted_ = !has_compression_state(path, residuals, world_);
  if (!compression_restarted_) std::ranges::move(residuals, std::back_inserter(entries));
  RunState state;
  try {
    state =
        parse_state(checkpoint::load(path, entries, world_,
                                     {.ignored = compression_restarted_ ? kCompressionPrefix : "",
                                      .on_wait = tell(observer_)}),
                    path.string());
  } catch (const CheckpointError& error) {
    throw CheckpointError(error.what() + describe_changes(path, config_));
  }
  if (compression_restarted_) restart_compression(hook_.get(), config_.train, state.step);
  model_->end_step();  // each rank has read its part of the weights
  optimizer_->set_num_steps(state.optimizer_steps);
  if (state.loss_scale > 0) loss_scale_.restore(state.loss_scale, state.loss_scale_steps);
  bad_steps_.restore(state.bad_steps);
  noise_.restore(state.noise);
  return state;
}

void Trainer::Impl::start_output() {
  if (mesh_.size("tensor") > 1) {
    const std::vector<std::string> hosts = comm::all_gather_strings(world_, comm::host_identity());
    tensor_crosses_hosts_ = tensor_crosses_hosts(hosts, mesh_.size("tensor"));
  }
  on_root([this] {
    output_->start(to_toml(config_), step_);
    if (step_ > 0) note_checkpoint(folder(), step_);
    const std::vector<int64_t>& lines = output_->metrics().unreadable_lines();
    if (!lines.empty()) {
      resume_notes_.push_back(concat(kMetricsName, " keeps lines that cannot be read: ",
                                     lines.size(), ", the first is line ", lines.front()));
    }
  });
  if (is_root()) observer_.on_start(config_, summary());
}

RunSummary Trainer::Impl::summary() const {
  return {.num_ranks = world_.size(),
          .num_threads = at::get_num_threads(),
          .num_parameters = config_.task->num_parameters(),
          .num_samples = config_.task->training().size(),
          .microbatches_per_step = config_.microbatches_per_step(),
          .resumed_step = step_,
          .resume_notes = resume_notes_,
          .compression_restarted = compression_restarted_,
          .tensor_crosses_hosts = tensor_crosses_hosts_,
          .memory = model_->memory(),
          .compression_bytes = compression_bytes(hook_.get()),
          .optimizer_bytes = optimizer_->state_bytes()};
}

// Moves layers between stages, with their weights and optimizer states, through a separate
// checkpoint, which works for any two layouts. No bit of the computation changes.
void Trainer::Impl::rebalance() {
  const auto layers = balance_->better_layers(config_.parallel.rebalance_threshold);
  if (!layers || ask_again(Leave::kNo) != Leave::kNo) return;
  const fs::path root = folder() / "rebalance";
  const std::string before = to_text(model_->layout().layers);
  on_root([&] { fs::remove_all(root); });  // left by a run that was interrupted here
  write_checkpoint(root);
  config_.parallel.stage_layers = to_text(*layers);
  build_model();
  const RunState state =
      load(from_root([&] { return checkpoint::latest(root).value_or(root).string(); }));
  TRIREME_ASSERT(state.step == step_, "moved to the weights of step ", state.step, " in step ",
                 step_);
  on_root([&] {
    fs::remove_all(root);
    output_->write_config(to_toml(config_));
  });
  if (!is_root()) return;
  observer_.on_finding(concat("decided layers of the stages ", before, " -> ",
                              config_.parallel.stage_layers, ", to even out their times"));
}

// Reports the step's metrics and its finding.
void Trainer::Impl::report(const std::optional<std::string>& finding) {
  if (!is_root()) return;
  if (!output_->metrics().write(metrics_)) {
    observer_.on_finding(
        concat(kMetricsName,
               " was removed or replaced; the file now at its place continues from step ", step_));
  }
  observer_.on_step(metrics_);
  if (finding) observer_.on_finding(*finding);
}

void Trainer::Impl::save() {
  const auto start = Clock::now();
  const fs::path root = folder() / "checkpoints";
  if (ask_again(Leave::kNo) == Leave::kFolderLost) leave_lost_folder();
  // A checkpoint must never claim a step whose line is missing, even after a power failure.
  on_root([this] { output_->metrics().sync(); });
  try {
    write_checkpoint(root);
  } catch (const CommError&) {
    throw;  // nothing can be asked any more
  } catch (const Error&) {
    if (ask_again(Leave::kNo) == Leave::kFolderLost) leave_lost_folder();
    throw;
  }
  on_root([this] { note_checkpoint(folder(), step_); });
  if (!is_root()) return;
  observer_.on_checkpoint(checkpoint::latest(root).value_or(root), seconds_since(start));
}

// The run's folder is not in its place. Saves a checkpoint where it can, and ends the run with an
// explanation.
void Trainer::Impl::leave_lost_folder() {
  const std::string found = from_root([this] {
    const RunFolder::Loss loss = output_->recover(metrics_);
    return loss.refuge.string() + '\0' + loss.message;
  });
  const size_t end = found.find('\0');
  if (end > 0) write_checkpoint(fs::path(found.substr(0, end)) / "checkpoints");
  throw ConfigError(found.substr(end + 1));
}

void Trainer::Impl::write_checkpoint(const fs::path& root) {
  const RunState state{.step = step_,
                       .next_sample = batches_->step_sample(step_),
                       .optimizer_steps = optimizer_->num_steps(),
                       .config = to_toml(config_),
                       .loss_scale = loss_scale_.scale(),
                       .loss_scale_steps = loss_scale_.good_steps(),
                       .bad_steps = bad_steps_.state(),
                       .noise = noise_.state(),
                       .data = data_,
                       .validation = validation_};
  auto entries = checkpoint_entries(model_->shards(), *optimizer_);
  std::ranges::move(compression_entries(hook_.get(), mesh_.axes()), std::back_inserter(entries));
  checkpoint::save(root, step_, entries, to_json(state), world_,
                   {.keep = static_cast<int>(config_.checkpoint.keep), .on_wait = tell(observer_)});
}

void Trainer::Impl::profile_pipeline() {
  if (!profiler_ || !profiler_->is_recording() || mesh_.size("pipeline") == 1) return;
  profiler_->add_pipeline_run(model_->layout().schedule(batches_->num_microbatches()),
                              mesh_.coordinate("pipeline"), model_->pipeline_profile());
}

// Finishes the profile when it is due. Returns whether it was.
bool Trainer::Impl::finish_profile(bool run_ends) {
  if (!profiler_ || !profiler_->is_due(run_ends)) return false;
  const auto report = profiler_->finish(folder() / "profile" / "trace.json");
  if (report) observer_.on_profile(*report);
  return true;
}

// This rank's answer.
Leave Trainer::Impl::leave() const {
  if (output_ && !output_->is_in_place()) return Leave::kFolderLost;
  return stop_ != nullptr && stop_->load() ? Leave::kAsked : Leave::kNo;
}

// Asks all ranks again, after work that may have taken longer than a step.
Leave Trainer::Impl::ask_again(Leave so_far) {
  return std::max(so_far, agree(world_, [this] { return leave(); }));
}

// Runs one step and reports its metrics. Returns why the run should leave, if it should.
Leave Trainer::Impl::train_step() {
  StepContext context{config_,    *model_, *optimizer_, loss_scale_,
                      bad_steps_, noise_,  *batches_,   profiler_ ? &*profiler_ : nullptr};
  overlap_.begin_step();
  StepResult result = run_step(context, step_ + 1, [this] { return leave(); });
  metrics_ = result.metrics;
  Leave leave = result.leave;
  profile_pipeline();
  const std::optional<std::string> finding =
      overlap_.end_step({model_->layers_window(), model_->tensor_waiting()});
  ++step_;
  const bool is_last = step_ == config_.train.steps;
  if (validation_batches_ && leave == Leave::kNo &&
      (is_due(config_.train.evaluate_interval) || is_last)) {
    const auto found = evaluate(*config_.task, *model_, *validation_batches_, [&] {
      leave = ask_again(leave);
      return leave != Leave::kNo;
    });
    if (found) {
      metrics_.validation_loss = found->loss;
      metrics_.validation_others = found->others;
    }
    leave = ask_again(leave);
  }
  if (is_due(config_.train.check_replicas_interval)) {
    check_replicas(*model_, config_.parallel.zero == 3);
    leave = ask_again(leave);
  }
  if (leave == Leave::kFolderLost) leave_lost_folder();
  report(finding);
  return finish_profile(is_last || leave != Leave::kNo) ? ask_again(leave) : leave;
}

Outcome Trainer::Impl::run(const std::atomic<bool>& stop) {
  stop_ = &stop;
  if (step_ < config_.train.steps && ask_again(Leave::kNo) == Leave::kAsked) {
    return Outcome::kStopped;
  }
  while (step_ < config_.train.steps) {
    Leave leave = train_step();
    const bool is_last = step_ == config_.train.steps;
    const bool saves = is_due(config_.checkpoint.interval) || is_last;
    if (saves) save();
    if (is_last) break;
    if (saves) leave = ask_again(leave);
    if (balance_ && leave == Leave::kNo) {
      balance_->add(model_->pipeline_profile());
      if (is_due(config_.parallel.rebalance_interval)) {
        rebalance();
        leave = ask_again(leave);
      }
    }
    if (leave == Leave::kFolderLost) leave_lost_folder();
    if (leave == Leave::kAsked) {
      if (!saves) save();
      finish_profile(/*run_ends=*/true);
      return Outcome::kStopped;
    }
  }
  return Outcome::kFinished;
}

Trainer::Trainer(RunConfig config, comm::Communicator& world, TrainObserver& observer,
                 const ProfileOptions& profile) {
  try {
    open_inputs_together(config, world, observer);
    impl_ = std::make_unique<Impl>(std::move(config), world, observer, profile);
  } catch (...) {
    rethrow_with_memory_advice();
  }
}

Trainer::~Trainer() = default;

Outcome Trainer::run(const std::atomic<bool>& stop) {
  try {
    return impl_->run(stop);
  } catch (...) {
    rethrow_with_memory_advice();
  }
}

}  // namespace trireme::train
