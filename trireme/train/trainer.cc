// Length: one class, the loop of a run and what happens in it.
//
// The loop: each method is one decision of a run.
#include "trireme/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/train/parallel/replica_check.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/compute_device.h"
#include "trireme/train/run/counted_memory.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/run/memory_check.h"
#include "trireme/train/run/memory_snapshot.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/run/source_use.h"
#include "trireme/train/state/resume.h"
#include "trireme/train/trainer_impl.h"

namespace trireme::train {

namespace fs = std::filesystem;

// What callbacks see of the run.
class TrainerImpl::View final : public RunView {
 public:
  explicit View(TrainerImpl& run) : run_(run) {}

  const RunConfig& config() const override { return run_.config_; }
  fs::path folder() const override { return run_.folder(); }
  comm::Communicator& world() override { return run_.updates_.peers(); }
  int64_t step() const override { return run_.step_; }
  const StepMetrics& metrics() const override { return run_.metrics_; }
  const std::vector<parallel::Shard>& shards() override { return run_.state_.model().shards(); }
  std::vector<std::pair<std::string, at::Tensor>> parameters() override {
    return run_.state_.model().parameters();
  }
  int64_t activation_copies() const override {
    const ParallelConfig& parallel = run_.config_.parallel;
    return parallel.sequence_parallel ? 1 : parallel.tensor;
  }
  std::optional<int> learner() const override {
    const RunConfig& config = run_.config_;
    return config.parallel.learners > 1 ? std::optional(config.learner) : std::nullopt;
  }
  std::span<const std::string> parameter_names() const override {
    return run_.state_.model().parameter_names();
  }
  bool counts(const parallel::Shard& shard) const override {
    return run_.state_.model().counts(shard);
  }
  double gradient_factor() const override { return run_.gradient_factor_; }
  void spread_weights() override { run_.state_.model().spread_weights(); }
  std::optional<double> evaluate() override {
    if (run_.validation_batches_.empty()) return std::nullopt;
    const auto found = train::evaluate(run_.config_, run_.state_.model(), run_.validation_batches_,
                                       [this] { return run_.ask_again(Leave::kNo) != Leave::kNo; });
    return found ? std::optional(found->loss) : std::nullopt;
  }
  void add_metric(std::string name, double value) override {
    run_.metrics_.others.emplace_back(std::move(name), value);
  }
  void add_list(std::string name, std::vector<double> values) override {
    run_.metrics_.lists.emplace_back(std::move(name), std::move(values));
  }
  void add_histograms(std::span<const NamedHistogram> histograms) override {
    if (run_.is_root()) run_.output_->metrics().write(run_.step_, histograms);
  }
  void tell(const std::string& line) override {
    if (run_.is_root()) run_.observer_.on_finding(line);
  }
  double longest_save_seconds() const override { return in_seconds(run_.saves_.longest()); }
  void request_checkpoint() override { run_.requests_.checkpoint = true; }
  void stop(std::string reason, bool for_good) override {
    run_.requests_.stop = {std::move(reason), for_good};
  }

 private:
  TrainerImpl& run_;
};

TrainerImpl::TrainerImpl(RunConfig config, std::shared_ptr<MemoryLedger> memory,
                         UpdateStrategy& updates, TrainObserver& observer,
                         const ProfileOptions& profile)
    : memory_(std::move(memory)),
      config_(std::move(config)),
      given_order_(config_.parallel.gradient_order),
      updates_(updates),
      world_(updates.trainers()),
      observer_(observer),
      recorder_(profile.recorder),
      mesh_(updates.mesh_ranks(), mesh_axes(config_.parallel)),
      callbacks_(config_.callbacks, config_, tell_of_callbacks(observer)),
      overlap_(config_.parallel.tensor > 1 ? config_.parallel.async_tensor : AsyncTensor::kOff,
               mesh_.world(),
               // On a GPU the recorded times of calls are those of the host.
               {config_.device.is_cpu() ? profile.recorder : nullptr, "tensor",
                static_cast<int>(config_.parallel.tensor)}),
      model_mesh_(updates.mesh_of_model(mesh_)),
      state_(config_, model_mesh_, updates.savers(model_mesh_), callbacks_, overlap_.flag(),
             tell(observer)),
      saves_(config_, state_, updates.savers(model_mesh_)),
      reports_(observer) {
  const MemoryScope scope(MemoryKind::kOther, memory_);
  on_root([this] {
    output_.emplace(folder(), lock_output_folder(config_),
                    [this](const fs::path& path) { state_.write_files(path); });
    if (config_.watch.memory == WatchMemory::kSnapshot) remove_memory_snapshots(folder());
    start_store();
  });
  config_.run_epoch = std::stoll(from_root(
      [this] { return std::to_string(number_epoch(folder(), config_.job, config_.job_epoch)); }));
  // Rank 0 owns the folder now. Before that it may have belonged to another run.
  observer_.on_folder();
  if (config_.watch.memory == WatchMemory::kSnapshot)
    write_memory_snapshots(*memory_, folder(), world_.rank());
  places_.emplace(config_, world_, tell(observer));
  resumption_.emplace(config_, world_, *places_, tell(observer));
  config_.parallel.gradient_order = resumption_->gradient_order();
  config_.shares = resumption_->shares();
  check_learners(config_, world_.size());  // the order may be new to them
  // An elastic job may have come to ranks that read less than their share.
  if (config_.train.shares_interval > 0 && sample_ranks(config_.parallel) > 1 &&
      config_.is_even()) {
    share_balance_.emplace(mesh_);
    if (config_.shares.empty()) config_.shares = config_.equal_shares();
  }
  if (!config_.shares.empty()) check_layout(config_);  // those of a checkpoint are new to it
  if (mesh_.size("tensor") > 1) check_threads(at::get_num_threads(), mesh_.group("tensor"));
  if (config_.train.reproducible) check_sum_order(mesh_.group("tensor"));
  build_model();
  const RunState state = resumption_->load(state_);
  step_ = begun_step_ = state.step;
  set_steps(config_, {state.step, state.next_sample});
  if (resumption_->is_in_folder()) saved_step_ = step_;
  if (config_.task->traits().num_scores > 0) reference_.emplace(config_, mesh_);
  batches_.emplace(reference_ ? reference_->training() : config_.task->training(),
                   training_batches(config_, mesh_, {state.step, state.next_sample}),
                   read_ahead(config_, state_.model().mesh().world(), config_.train.steps));
  require_fresh_samples(config_.task->training().blend(), batches_->loader(),
                        std::max(step_, config_.train.steps));
  if (!updates_.root_saves()) open_validation();  // else no rank has the newest weights
  if (profile.num_steps > 0) {
    TRIREME_CHECK(
        !updates_.is_alone(), "a profile with ",
        config_.parallel.learners > 1 ? "parallel.learners " : "parallel.staleness ",
        config_.parallel.learners > 1 ? config_.parallel.learners : config_.parallel.staleness,
        ", whose ranks share no step; leave the profile out");
    check_profile(profile, step_ + 1, config_.train.steps);
    profiler_.emplace(profile, step_ + 1, world_);
  }
}

void TrainerImpl::open_validation() {
  for (const ValidationSet& set : all_validation(*config_.task)) {
    const bool is_scored = reference_ && set.name.empty();
    const dataset::Source& source = is_scored ? *reference_->validation() : *set.source;
    validation_batches_.emplace_back(
        set.name, source, validation_batches(config_, mesh_, evaluation_samples(config_, source)),
        read_ahead(config_, state_.model().mesh().world(), /*num_steps=*/1));
  }
}

void TrainerImpl::build_model() {
  updates_.attach(state_);
  state_.build();
  if (config_.parallel.rebalance_interval > 0 && mesh_.size("pipeline") > 1) {
    balance_.emplace(state_.model().layout(), mesh_);
  }
}

// Gives samples what the initial model says of them, if the task wants that. False: the run is to
// stop before it has.
bool TrainerImpl::find_reference() {
  if (!reference_) return true;
  return reference_->find({.model = state_.model(),
                           .step = step_,
                           .data = resumption_->data(),
                           .validation = resumption_->validation(),
                           .is_cut = [this] { return ask_again(Leave::kNo) != Leave::kNo; },
                           .tell =
                               [this](const std::string& line) {
                                 if (is_root()) observer_.on_finding(line);
                               },
                           .on_wait = tell(observer_)});
}

// Runs on rank 0 what reads files, for all ranks. The others wait for it, and fail if it fails.
std::string TrainerImpl::from_root(const std::function<std::string()>& produce) {
  return checkpoint::from_root(
      world_, [&](const checkpoint::Peers&) { return produce(); }, tell(observer_));
}

// The same for work without a result.
void TrainerImpl::on_root(const std::function<void()>& work) {
  from_root([&] {
    work();
    return std::string();
  });
}

RunSummary TrainerImpl::summary(int num_ranks) const {
  return {
      .num_ranks = num_ranks,
      .num_threads = at::get_num_threads(),
      .device = config_.device,
      .num_parameters = state_.model().traits().num_parameters,
      .num_trained = state_.model().num_trained(),
      .num_samples = config_.task->training().size(),
      .sources = source_uses(config_.task->training().blend(),
                             batches_->loader().step_sample(std::max(step_, config_.train.steps))),
      .microbatches_per_step = config_.microbatches_per_step(),
      .resumed_step = step_,
      .resumed_place = step_ > 0 ? resumption_->place() : "",
      .initial_weights = state_.initial_weights().string(),
      .initial_notes = state_.initial_notes(),
      .resume_notes = resume_notes_,
      .compression_restarted = state_.compression_restarted(),
      .tensor_crosses_hosts = tensor_crosses_hosts_,
      .memory = state_.model().memory(),
      .compression_bytes = state_.compression_bytes(),
      .optimizer_bytes = state_.optimizer().state_bytes(),
      .table_bytes = state_.tables().memory_bytes()};
}

void TrainerImpl::call(Event event, const fs::path& checkpoint) {
  View view(*this);
  callbacks_.call(event, view, checkpoint);
}

void TrainerImpl::profile_pipeline() {
  if (!profiler_ || !profiler_->is_recording() || mesh_.size("pipeline") == 1) return;
  profiler_->add_pipeline_run(
      state_.model().layout().schedule(batches_->loader().num_microbatches(step_)),
      mesh_.coordinate("pipeline"), state_.model().pipeline_profile());
}

// Finishes the profile when it is due. Returns whether it was.
bool TrainerImpl::finish_profile(bool run_ends) {
  if (!profiler_ || !profiler_->is_due(run_ends)) return false;
  const auto report = profiler_->finish(folder() / "profile" / "trace.json");
  if (report) observer_.on_profile(*report);
  return true;
}

// This rank's answer.
Leave TrainerImpl::leave() const {
  if (output_ && !output_->is_in_place()) return Leave::kFolderLost;
  return stop_ != nullptr && (*stop_)() ? Leave::kAsked : Leave::kNo;
}

// Asks all ranks again, after work that may have taken longer than a step.
Leave TrainerImpl::ask_again(Leave so_far) {
  return std::max(so_far, updates_.settle(agree(updates_.peers(), [this] { return leave(); })));
}

// The same where all that save are, even if their peers are fewer.
Leave TrainerImpl::ask_all(Leave so_far) {
  if (updates_.root_saves()) return ask_again(so_far);
  return std::max(so_far, agree(world_, [this] { return leave(); }));
}

// Runs one step and reports its metrics, unless the folder is lost. Returns why the run should
// leave, if it should.
Leave TrainerImpl::train_step() {
  StepContext context{config_,
                      state_.model(),
                      updates_,
                      updates_.parts(state_),
                      state_.loss_scale(),
                      state_.bad_steps(),
                      state_.noise(),
                      state_.bad_samples(),
                      *batches_,
                      *memory_,
                      profiler_ ? &*profiler_ : nullptr,
                      recorder_.get(),
                      numbers_ ? &*numbers_ : nullptr,
                      state_.gets_gradients()};
  if (callbacks_.wants_gradients(step_ + 1)) {
    context.on_gradients = [this](const StepMetrics& metrics, double gradient_factor) {
      metrics_ = metrics;
      gradient_factor_ = gradient_factor;
      call(Event::kGradients);
    };
  }
  state_.model().use_probes(callbacks_.probes(step_ + 1));
  overlap_.begin_step();
  if (MemoryBlocks* const blocks = memory_->blocks()) blocks->set_step(step_ + 1);
  StepResult result = run_step(context, step_ + 1, [this] { return leave(); });
  if (share_balance_) share_balance_->add(result.worked_seconds);
  metrics_ = result.metrics;
  metrics_.epoch = config_.run_epoch;
  metrics_.time = unix_seconds();
  saves_.add_metrics(metrics_);
  if (!config_.shares.empty()) {
    const std::vector<int64_t> sizes = shares_at(config_.shares, step_);
    metrics_.lists.emplace_back("micro_batches", std::vector<double>(sizes.begin(), sizes.end()));
  }
  Leave leave = result.leave;
  profile_pipeline();
  const std::optional<std::string> finding =
      overlap_.end_step({state_.model().layers_window(), state_.model().tensor_waiting()});
  step_ = updates_.reached_step(step_ + 1);
  const bool is_last = step_ == config_.train.steps;
  if (!validation_batches_.empty() && leave == Leave::kNo &&
      (is_due(config_.train.evaluate_interval) || is_last)) {
    leave = evaluate_step(leave);
  }
  if (is_due(config_.train.check_replicas_interval)) {
    for (const StepPart* const part : state_.parts()) part->check_replicas();
    leave = ask_again(leave);
  }
  if (!callbacks_.empty()) leave = end_step(leave);
  if (leave == Leave::kFolderLost) return leave;
  write_series(std::move(result.ranks));
  if (is_root()) reports_.report(metrics_, output_->metrics(), {finding, result.finding});
  return finish_profile(is_last || leave != Leave::kNo) ? ask_again(leave) : leave;
}

// Evaluates, and lets callbacks evaluate more. Returns whether the run should leave.
Leave TrainerImpl::evaluate_step(Leave so_far) {
  const auto found = evaluate(config_, state_.model(), validation_batches_, [&] {
    so_far = ask_again(so_far);
    return so_far != Leave::kNo;
  });
  if (found) {
    metrics_.validation_loss = found->loss;
    metrics_.validation_others = found->others;
    if (found->finding && is_root() && !std::exchange(told_evaluation_, true)) {
      observer_.on_finding("evaluation: " + *found->finding);
    }
    call(Event::kEvaluate);
  }
  return ask_again(so_far);
}

// Tells the callbacks that a step has ended. Returns whether it was the last.
Leave TrainerImpl::end_step(Leave so_far) {
  call(Event::kStep);
  agree(updates_.peers(), requests_);
  return std::max(ask_again(so_far), requests_.stop ? Leave::kAsked : Leave::kNo);
}

void TrainerImpl::report(RunPoint when) {
  for (const std::string& line : state_.tables().report(when)) {
    if (is_root()) observer_.on_finding(line);
  }
}

Outcome TrainerImpl::end(Outcome outcome) {
  if (requests_.stop) {
    if (is_root()) observer_.on_finding("ended: " + requests_.stop->reason);
    if (requests_.stop->for_good) outcome = Outcome::kEnded;
  }
  report(RunPoint::kEnd);
  if (const std::string line = updates_.report(); is_root() && !line.empty()) {
    observer_.on_finding(line);
  }
  call(Event::kStop);
  if (saved_step_ == step_) places_->forget_memory();
  return outcome;
}

RunStart TrainerImpl::start() const {
  return {.step = step_,
          .num_steps = config_.train.steps,
          .optimizer_steps = state_.optimizer().num_steps(),
          .checkpoint = resumption_->checkpoint(),
          .initial_weights = state_.initial_weights()};
}

Outcome TrainerImpl::run(const std::function<bool()>& stop) {
  const MemoryScope scope(MemoryKind::kOther, memory_);
  stop_ = &stop;
  updates_.connect(stop);
  step_ = updates_.reached_step(step_);
  if (step_ < config_.train.steps && ask_again(Leave::kNo) == Leave::kAsked) {
    updates_.leave(step_, Leave::kAsked);
    return Outcome::kStopped;
  }
  if (step_ < config_.train.steps && !find_reference()) {
    updates_.leave(step_, Leave::kAsked);
    return Outcome::kStopped;
  }
  report(RunPoint::kStart);
  call(Event::kStart);
  if (!callbacks_.empty()) agree(updates_.peers(), requests_);
  if (requests_.stop && step_ < config_.train.steps) return end(Outcome::kStopped);
  // What survived in memory may not do so again.
  if (!resumption_->is_in_folder()) save(updates_.meet(step_, leave()));
  Leave why = Leave::kNo;
  while (step_ < config_.train.steps && why == Leave::kNo) {
    why = train_step();
    if (why == Leave::kFolderLost) break;
    observer_.on_finished(step_);
    if (saves_.is_busy() && updates_.has_met()) finish_save(/*waits=*/false);
    tell_of_store();
    const bool is_requested = std::exchange(requests_.checkpoint, false);
    if (why != Leave::kNo || step_ == config_.train.steps) break;
    if (is_requested || is_due(config_.checkpoint.interval)) {
      const Meeting meeting = updates_.meet(step_, leave());
      why = meeting.leave;
      if (why != Leave::kNo) break;
      save(meeting);
      why = ask_again(why);
    } else if (is_due(config_.checkpoint.memory_interval)) {
      save_to_memory();
    }
    if (balance_ && why == Leave::kNo) {
      balance_->add(state_.model().pipeline_profile());
      if (is_due(config_.parallel.rebalance_interval)) {
        rebalance();
        why = ask_again(why);
      }
    }
    if (share_balance_ && why == Leave::kNo && is_due(config_.train.shares_interval)) {
      share_anew();
      why = ask_again(why);
    }
  }
  const Meeting last = updates_.leave(step_, why);
  if (last.leave == Leave::kFolderLost) leave_lost_folder(last);
  if (last.step != begun_step_) save(last);
  finish_save(/*waits=*/true);
  if (!config_.checkpoint.store.empty()) on_root([this] { check_store(/*run_ends=*/true); });
  tell_of_store();
  if (last.step == config_.train.steps) return end(Outcome::kFinished);
  finish_profile(/*run_ends=*/true);
  return end(Outcome::kStopped);
}

Trainer::Trainer(RunConfig config, comm::Communicator& world, TrainObserver& observer,
                 const ProfileOptions& profile) {
  try {
    open_inputs_together(config, world, tell(observer));
    memory_advice_ = [this, config, num_ranks = world.size()] {
      return (memory_ ? largest_words(*memory_) : "") + memory_advice(config, num_ranks);
    };
    shared_memory_advice_ = shared_memory_advice(config);
    use_device(config);
    config.peak_flops = peak_flops(config, world);
    updates_ = make_update_strategy(config, world, observer);
    const auto make_trainer = [&] {
      updates_->prepare(config);
      memory_ = counting_ledger();
      impl_ =
          std::make_unique<TrainerImpl>(std::move(config), memory_, *updates_, observer, profile);
    };
    if (updates_->trainers().size() == world.size()) {
      make_trainer();
    } else {  // the others wait for what those that train read
      checkpoint::run_or_throw(
          world,
          [&](const checkpoint::Peers&) {
            if (updates_->trains()) make_trainer();
          },
          tell(observer));
      if (!updates_->trains()) observer.on_folder();
    }
    updates_->start(impl_ ? impl_->start() : RunStart(), impl_ ? &impl_->state() : nullptr);
    if (impl_) impl_->start_output(world.size());
  } catch (...) {
    rethrow_with_memory_advice(memory_advice_, shared_memory_advice_);
  }
}

Trainer::~Trainer() = default;

void Trainer::cancel_reads() const {
  if (impl_) impl_->cancel_reads();
}

Outcome Trainer::run(const std::function<bool()>& stop) {
  try {
    if (!impl_) updates_->serve();
    return updates_->finish(impl_ ? impl_->run(stop) : Outcome::kFinished);
  } catch (...) {
    rethrow_with_memory_advice(memory_advice_, shared_memory_advice_);
  }
}

Outcome Trainer::run(const std::atomic<bool>& stop) {
  return run([&stop] { return stop.load(); });
}

}  // namespace trireme::train
