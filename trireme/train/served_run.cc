#include "trireme/train/served_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/process_stat.h"
#include "trireme/base/random/entropy.h"
#include "trireme/base/seconds.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/parallel/layout.h"
#include "trireme/train/run/batches.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/server/served_model.h"
#include "trireme/train/state/resume.h"
#include "trireme/train/trainer_impl.h"

namespace trireme::train::inline internal {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The client of rank 0 that reads what the servers have when all workers have left.
constexpr uint32_t kReader = 65'535;

RunConfig for_one_rank(RunConfig config) {
  config.parallel.data = 1;
  config.parallel.shard = 1;
  return config;
}

// What a replayed run must have in common with the first.
std::string identity_text(RunConfig config) {
  config.output = {};
  config.checkpoint = {};
  config.resume = {};
  config.parallel.replay.clear();
  config.parallel.timeout_seconds = 1;
  return to_toml(config);
}

}  // namespace

ServedRun::ServedRun(RunConfig config, comm::Communicator& world, TrainObserver& observer)
    : config_(std::move(config)),
      alone_(for_one_rank(config_)),
      world_(world),
      observer_(observer),
      num_workers_(world.size() - static_cast<int>(config_.parallel.servers)),
      self_(world.split(world.rank(), 0, "alone")),
      role_(world.split(is_server() ? 1 : 0, 0, is_server() ? "servers" : "workers")),
      mesh_(*self_, mesh_axes(alone_.parallel)),
      callbacks_(config_.callbacks, config_),
      state_(alone_, mesh_, *self_, callbacks_, nullptr, tell(observer)),
      saves_(alone_, state_, *self_),
      reports_(observer) {
  if (!is_server()) workers_.emplace(*role_, mesh_axes(config_.parallel));
  const std::vector<std::string> hosts = comm::all_gather_strings(world_, comm::host_identity());
  TRIREME_CHECK(std::set(hosts.begin(), hosts.end()).size() == 1,
                "parallel.servers with ranks on several hosts, and servers listen on 127.0.0.1; "
                "start all ranks on one host");
  checkpoint::run_or_throw(world_, [this](const checkpoint::Peers&) {
    if (!is_root()) return;
    output_.emplace(config_.output.folder, lock_output_folder(config_),
                    [this](const fs::path& path) { config_.task->write_files(path); });
  });
  observer_.on_folder();
  places_.emplace(config_, world_, tell(observer));
  resumption_.emplace(config_, world_, *places_, tell(observer));
  state_.build();
  const RunState state = resumption_->load(state_);
  step_ = first_step_ = state.step;
  first_update_ = state_.optimizer().num_steps();
  if (!is_server()) {
    dataset::BatchOptions options =
        training_batches(config_, *workers_, {state.step, state.next_sample});
    batches_.emplace(config_.task->training(), options, read_ahead(config_, config_.train.steps));
  }
  start_output();
  start_servers();
}

ServedRun::~ServedRun() = default;

void ServedRun::start_output() {
  checkpoint::run_or_throw(world_, [this](const checkpoint::Peers&) {
    if (!is_root()) return;
    output_->start(to_toml(config_), step_);
    if (step_ > 0) note_checkpoint(config_.output.folder, step_);
    if (is_synchronous()) return;
    fs::create_directories(log_path(0).parent_path());
    for (int64_t i = 0; i < config_.parallel.servers; ++i) fs::remove(log_path(i));
  });
  if (!is_root()) return;
  observer_.on_start(config_, {.num_ranks = world_.size(),
                               .num_threads = at::get_num_threads(),
                               .device = config_.device,
                               .num_parameters = config_.task->num_parameters(),
                               .num_samples = config_.task->training().size(),
                               .microbatches_per_step = config_.microbatches_per_step(),
                               .resumed_step = step_,
                               .resumed_place = step_ > 0 ? resumption_->place() : "",
                               .initial_weights = state_.initial_weights().string(),
                               .resume_notes = resumption_->notes(),
                               .memory = state_.model().memory(),
                               .optimizer_bytes = state_.optimizer().state_bytes()});
}

fs::path ServedRun::log_path(int64_t server) const {
  return fs::path(config_.output.folder) / "server-log" /
         concat("from-", first_step_, "-server-", server);
}

void ServedRun::start_servers() {
  const ParallelConfig& parallel = config_.parallel;
  const std::vector<double> shares(static_cast<size_t>(parallel.servers), 1.0);
  servers_ = {.pieces = parallel::key_ranges(served_parameters(state_.model().shards()), shares),
              .shards = parallel.servers,
              .copies = parallel.server_copies,
              .consistency = {parallel.staleness},
              .secret = comm::broadcast_string(world_, unique_name() + unique_name(), 0),
              .config = identity_text(config_),
              .timeout = std::chrono::seconds(parallel.timeout_seconds)};
  if (is_root()) {
    director_ = std::make_unique<parallel::Director>(
        servers_, parallel::DirectorOptions{.workers = num_workers_});
    address_ = director_->address();
  }
  address_ = comm::broadcast_string(world_, address_, 0);
  checkpoint::run_or_throw(world_, [this](const checkpoint::Peers&) {
    if (!is_server()) return;
    const int64_t number = role_->rank();
    const std::string& replay = config_.parallel.replay;
    server_ = std::make_unique<parallel::ParameterServer>(
        servers_, make_pieces(config_, state_.model().shards(), state_.optimizer()),
        parallel::ParameterServerOptions{
            .director = address_,
            .number = static_cast<uint32_t>(number),
            .log = is_synchronous() || !replay.empty() ? fs::path() : log_path(number),
            .replay =
                replay.empty() ? fs::path() : fs::path(replay) / log_path(number).filename()});
  });
}

Outcome ServedRun::run(const std::function<bool()>& stop) {
  return is_server() ? serve() : work(stop);
}

Outcome ServedRun::serve() {
  server_->wait();
  return end_together(Outcome::kFinished, server_->counts().staleness);
}

Leave ServedRun::leave(const std::function<bool()>& stop) const {
  if (output_ && !output_->is_in_place()) return Leave::kFolderLost;
  return stop() ? Leave::kAsked : Leave::kNo;
}

Outcome ServedRun::work(const std::function<bool()>& stop) {
  client_ = std::make_unique<parallel::ServerClient>(
      servers_, parallel::ServerClientOptions{.director = address_,
                                              .number = static_cast<uint32_t>(world_.rank())});
  Leave why = Leave::kNo;
  const auto is_due = [&] {
    return config_.checkpoint.interval > 0 && step_ % config_.checkpoint.interval == 0;
  };
  std::optional<Meeting> last;  // where somebody has left
  while (step_ < config_.train.steps && why == Leave::kNo && !last) {
    why = train_step(stop);
    observer_.on_finished(step_);
    if (why != Leave::kNo || step_ == config_.train.steps || !is_due()) continue;
    const Meeting meeting = meet(*role_, step_, static_cast<int>(why));
    if (meeting.leave != static_cast<int>(Leave::kNo)) {
      last = meeting;
      continue;
    }
    if (is_root()) save(meeting, *client_);
    role_->barrier()->wait();
  }
  client_->leave();  // nobody waits for this worker's pushes any more
  if (!last) last = meet(*role_, step_, static_cast<int>(why));
  why = static_cast<Leave>(last->leave);
  TRIREME_CHECK(why != Leave::kFolderLost, "output.folder ", config_.output.folder,
                " is not in its place any more; resume from its newest checkpoint");
  if (is_root()) {
    parallel::ServerClient reader(servers_, {.director = address_, .number = kReader});
    save(*last, reader);
    reader.leave();
    director_->end();
  }
  return end_together(why == Leave::kNo ? Outcome::kFinished : Outcome::kStopped, {});
}

// One step of this worker.
Leave ServedRun::train_step(const std::function<bool()>& stop) {
  const auto start = Clock::now();
  ParallelModel& model = state_.model();
  std::vector<at::Tensor> weights;
  for (const parallel::Shard* const shard : trained_shards(model.shards())) {
    weights.push_back(shard->weights.detach());
  }
  client_->pull(step_ - first_step_ + 1, weights);
  const std::vector<dataset::Batch> batches =
      state_.bad_samples().read(*self_, *batches_, step_, 0, batches_->loader().num_microbatches());
  client_->wait_all_pulled();
  const double pull_seconds = seconds_since(start);
  const int64_t own_count = model.begin_step(batches);
  int64_t count = own_count * num_workers_;
  if (is_synchronous()) {
    count = 0;
    for (const int64_t each : comm::all_gather_numbers(*role_, own_count)) count += each;
  }
  model.use_global_count(count);
  std::vector<double> sums = model.forward_backward(batches, 1);
  StepMetrics metrics{.step = step_ + 1, .learning_rate = scheduled_rate(config_, step_ + 1)};
  const auto push_start = Clock::now();
  push(metrics.learning_rate, metrics);
  const double waited = pull_seconds + seconds_since(push_start);
  const auto width = sums.size() / batches.size();
  sums = is_synchronous() ? sums_over_batches(*workers_, 0, std::move(sums), width)
                          : model.sums_over_batches(std::move(sums));
  metrics.step_seconds = seconds_since(start);
  metrics.data_seconds = in_seconds(batches_->take_waiting());
  metrics.communication_fraction = std::min(1.0, waited / metrics.step_seconds);
  ++step_;
  Leave why = leave(stop);
  if (is_synchronous()) why = static_cast<Leave>(meet(*role_, step_, static_cast<int>(why)).leave);
  report(std::move(metrics), sums, static_cast<double>(is_synchronous() ? count : own_count));
  return why;
}

void ServedRun::push(double learning_rate, StepMetrics& metrics) {
  metrics.grad_norm = std::numeric_limits<double>::quiet_NaN();
  if (!is_synchronous()) {
    const std::vector<double> squares = state_.model().gradient_squares();
    // Of the mean over this worker's samples.
    metrics.grad_norm = gradient_norm(squares) * num_workers_;
    TRIREME_CHECK(std::isfinite(metrics.grad_norm), "step ", metrics.step, ", worker ",
                  world_.rank(), ": a gradient is not finite, first that of ",
                  first_nonfinite_gradient(state_.model().gradient_names(), squares),
                  "; lower optimizer.learning_rate");
    const double clip = clip_factor(metrics.grad_norm, config_.train.gradient_clip);
    for (const parallel::Shard& shard : state_.model().shards()) {
      if (clip != 1 && shard.gradient.defined()) shard.gradient.mul_(clip);
    }
  }
  held_.clear();
  int64_t index = 0;
  const int64_t sent = client_->counts().sent_bytes;
  for (const parallel::Shard* const shard : trained_shards(state_.model().shards())) {
    const at::Tensor gradient =
        shard->gradient.defined() ? shard->gradient : at::zeros_like(shard->weights);
    held_.push_back(gradient.contiguous());
    client_->push(step_ - first_step_ + 1, index++, held_.back(), learning_rate);
  }
  client_->wait_pushed();
  metrics.gradient_bytes = client_->counts().sent_bytes - sent;
}

// sums: over the samples of the step, or of this worker's part of it; the loss comes first.
void ServedRun::report(StepMetrics metrics, const std::vector<double>& sums, double count) {
  metrics.loss = sums[0] / count;
  TRIREME_CHECK(std::isfinite(metrics.loss), "step ", metrics.step, ": the loss is ", metrics.loss,
                "; lower optimizer.learning_rate, or lengthen optimizer.warmup_steps");
  if (!is_root()) return;
  metrics.others = finish_metrics(*config_.task, sums);
  metrics.peak_rss_bytes = static_cast<int64_t>(peak_resident_bytes());
  const Throughput throughput = config_.task->throughput();
  metrics.unit = throughput.unit;
  metrics.units_per_second =
      static_cast<double>(batches_->loader().step_size(step_ - 1) * throughput.per_sample) /
      metrics.step_seconds;
  saves_.add_metrics(metrics);
  reports_.report(metrics, output_->metrics(), {});
}

// Rank 0's: brings what the servers have into the model, and writes it.
void ServedRun::save(const Meeting& meeting, parallel::ServerClient& client) {
  if (meeting.least_step == first_step_) return;  // the checkpoint that it started from
  pull_into(client, state_.model().shards(), state_.optimizer());
  const int64_t steps = meeting.sum_of_steps - num_workers_ * first_step_;
  state_.optimizer().set_num_steps(first_update_ +
                                   (is_synchronous() ? step_ - first_step_ : steps));
  output_->metrics().sync();
  saves_.start(*places_, {.step = meeting.least_step,
                          .next_sample = batches_->loader().step_sample(meeting.least_step),
                          .data = resumption_->data(),
                          .validation = resumption_->validation()});
  const auto saved = saves_.finish(/*waits=*/true);
  if (const auto warning = saves_.take_warning()) observer_.on_finding(*warning);
  if (!saved) return;
  note_checkpoint(config_.output.folder, saved->step);
  observer_.on_checkpoint(saved->folder, in_seconds(saved->took), in_seconds(saved->stall));
}

// Every rank has the outcome of rank 0, and rank 0 the histogram of all servers.
Outcome ServedRun::end_together(Outcome outcome, const parallel::StalenessCounts& staleness) {
  std::string mine;
  for (const auto& [steps, count] : staleness) mine += concat(steps, ' ', count, ' ');
  parallel::StalenessCounts all;
  for (const std::string& text : comm::gather_strings(world_, mine, 0)) {
    std::istringstream words(text);
    for (int64_t steps = 0, count = 0; words >> steps >> count;) all[steps] += count;
  }
  outcome =
      static_cast<Outcome>(comm::all_gather_numbers(world_, static_cast<int64_t>(outcome)).front());
  if (is_root() && !is_synchronous()) {
    const std::string text = parallel::to_json(all);
    OutputFile file(fs::path(config_.output.folder) / "server-log" / "staleness.json");
    file.write(text + "\n");
    file.close();
    observer_.on_finding("pulls by steps ahead of the slowest worker: " + text);
  }
  return outcome;
}

}  // namespace trireme::train::inline internal
