#include "trireme/cli/train/train_rank.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include <sys/sysmacros.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/random/random.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/automatic_layout.h"
#include "trireme/cli/train/run_alerts.h"
#include "trireme/cli/train/run_events.h"
#include "trireme/cli/train/run_tracking.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/device/cuda_ipc_group.h"
#include "trireme/comm/device_group.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/train/learner/host_learners.h"
#include "trireme/train/run/compute_device.h"

namespace trireme::cli {
namespace {

// Every rank records its calls in the run's folder, if there is one, for `trireme doctor`.
// `job`: the same on all ranks.
comm::GroupOptions group_options(const train::RunConfig& config, const comm::WorldInfo& rank,
                                 const std::string& job) {
  const comm::RecorderOptions options{
      .folder = config.output.folder.empty()
                    ? ""
                    : std::filesystem::path(config.output.folder) / "recorder",
      .rank = rank.rank,
      .world_size = rank.size,
      .job = job,
      // A run that is refused must not replace the files of the running one.
      .is_unpublished = true};
  return {.timeout = std::chrono::seconds(config.parallel.timeout_seconds),
          .heap_bytes = static_cast<size_t>(config.parallel.heap_bytes),
          .recorder = std::make_shared<comm::Recorder>(options)};
}

// `host` with a group for GPUs beside it when ranks compute on them. make_gpus: makes that group,
// of the same ranks.
std::unique_ptr<comm::Communicator> with_gpus(
    std::unique_ptr<comm::Communicator> host, const train::RunConfig& config,
    comm::GroupOptions options,
    const std::function<std::unique_ptr<comm::Communicator>(const comm::GroupOptions&)>&
        make_gpus) {
  train::check_device(config);  // before NCCL, which could only say less
  train::check_same_device(config.device, *host);
  if (config.device.is_cpu()) return host;
  train::use_device(config);
  options.name = comm::name_on_device(options.name, config.device.type());
  auto gpus = make_gpus(options);
  return comm::make_device_group(std::move(host), std::move(gpus), config.device.type());
}

using Clock = std::chrono::steady_clock;

// Longest time that a killed process takes to end.
constexpr std::chrono::seconds kKillMoment{2};
constexpr std::chrono::milliseconds kLockLook{100};

bool is_free(const std::filesystem::path& folder) {
  try {
    const FolderLock lock(folder, kLockLook);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

void await_free(const FolderWait& wait, const checkpoint::Peers& peers) {
  const Clock::time_point start = Clock::now();
  bool is_told = false;
  while (std::filesystem::is_directory(wait.folder) && !is_free(wait.folder)) {
    peers.check();
    const auto waited = Clock::now() - start;
    if (waited > wait.patience) return;
    if (is_told || waited < kKillMoment) continue;
    is_told = true;
    wait.tell(concat("folder  ", wait.folder.string(), " is held by ", lock_holder(wait.folder),
                     ", perhaps a rank of an earlier epoch: waits up to ", wait.patience.count(),
                     " s for its end"));
  }
}

std::atomic<bool> stop_flag = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // set from a signal handler

// "epoch 2: 3 ranks, rank 2 was killed by signal 9; goes on from step 40 in memory".
std::string describe(const Epoch& epoch, const train::RunSummary& summary) {
  const bool is_new = summary.resumed_step == 0;
  return concat(
      "epoch ", epoch.number, ": ", summary.num_ranks, summary.num_ranks == 1 ? " rank" : " ranks",
      epoch.reason.empty() ? "" : ", ", epoch.reason,
      is_new ? "; starts at step 1" : concat("; goes on from step ", summary.resumed_step),
      is_new ? "" : " in " + summary.resumed_place);
}

// Each line of `text` is a finding.
void tell_lines(train::TrainObserver& observer, const std::string& before,
                const std::string& text) {
  TextReader lines(text);
  for (std::string line; std::getline(lines, line);) observer.on_finding(before + line);
}

// An observer of one epoch. Publishes the rank's records in the run's folder as soon as the run
// owns it. On rank 0 `record` learns what the steps take.
template <typename Base>
class EpochObserver : public Base {
 public:
  EpochObserver(const Epoch& epoch, comm::Recorder& recorder, RunRecord& record)
      : epoch_(epoch),
        recorder_(recorder),
        record_(record),
        tracking_([this](const std::string& line) { Base::on_finding(line); }) {}
  RunTracking& tracking() { return tracking_; }
  void on_folder() override { recorder_.publish(); }
  void on_start(const train::RunConfig& config, const train::RunSummary& summary) override {
    if (epoch_.number > 1) Base::on_finding(describe(epoch_, summary));
    if (epoch_.events) epoch_.events->start(config, summary);
    alerts_.emplace(config.output.folder, epoch_.events ? config.run_epoch : epoch_.number);
    tracking_.start(config, summary);
    record_.begin(config);
    Base::on_start(config, summary);
    tell_lines(*this, "", record_.planned_memory());
  }
  void on_step(const train::StepMetrics& metrics) override {
    record_.add(metrics);
    Base::on_step(metrics);
    tracking_.add(metrics);
    if (!alerts_) return;
    for (const std::string& line : alerts_->add(metrics)) {
      if (epoch_.events) epoch_.events->log().add(line);
    }
  }
  void on_checkpoint(const std::filesystem::path& path, double seconds,
                     double stall_seconds) override {
    if (epoch_.events) epoch_.events->save(path, seconds);
    Base::on_checkpoint(path, seconds, stall_seconds);
  }
  void on_finished(int64_t step) override {
    if (epoch_.events) epoch_.events->finish_step(step);
    if (epoch_.on_finished) epoch_.on_finished(step);
  }

 private:
  const Epoch& epoch_;
  comm::Recorder& recorder_;
  RunRecord& record_;
  std::optional<RunAlerts> alerts_;
  RunTracking tracking_;
};

}  // namespace

RankGroup::RankGroup(train::RunConfig& config) {
  const comm::GroupOptions options = group_options(config, {}, unique_name());
  recorder_ = options.recorder;
  config.device = train::rank_device(config.train.device, config.parallel.gpu_transport, 0, 1);
  world_ = with_gpus(std::move(comm::make_thread_group(1, options).front()), config, options,
                     [&](const comm::GroupOptions& gpu) {
                       if (config.parallel.gpu_transport == train::GpuTransport::kCudaIpc) {
                         return comm::make_cuda_ipc_group(
                             std::move(comm::make_thread_group(1).front()), gpu.name);
                       }
                       return comm::make_nccl_group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                                                    {.name = gpu.name, .timeout = gpu.timeout});
                     });
}

RankGroup::RankGroup(train::RunConfig& config, const comm::WorldInfo& info,
                     const std::shared_ptr<comm::Cancellation>& cancellation)
    : num_local_ranks_(info.local_size) {
  rendezvous_ = std::make_unique<comm::Rendezvous>(
      info, comm::RendezvousOptions{
                .timeout = std::chrono::seconds(config.parallel.timeout_seconds),
                .on_refused =
                    [](const std::string& line) {
                      std::fprintf(stderr, "trireme: the store %s\n", printable(line).c_str());
                    },
                .cancellation = cancellation});
  const std::string& transport = config.parallel.transport;
  // Recorded from here on, to show a start that waits for a rank.
  const std::string meeting = info.store.empty() ? info.job : info.store;
  comm::GroupOptions options = group_options(config, info, meeting);
  options.cancellation = cancellation;
  options.recorder->name_job(rendezvous_->job(transport));
  recorder_ = options.recorder;
  config.device = train::rank_device(config.train.device, config.parallel.gpu_transport,
                                     info.local_rank, info.local_size);
  const std::string gpu_transport = name_of(train::kGpuTransports, config.parallel.gpu_transport);
  world_ = with_gpus(
      rendezvous_->connect(transport, options), config, options,
      [&](const comm::GroupOptions& gpus) { return rendezvous_->connect(gpu_transport, gpus); });
  config.host_address = rendezvous_->address();
}

void await_folder(const FolderWait& wait, comm::Communicator& world,
                  const checkpoint::OnWait& on_wait) {
  const auto await = [&](const checkpoint::Peers& peers) {
    if (world.rank() == 0) await_free(wait, peers);
  };
  checkpoint::run_or_throw(world, await, on_wait);
}

// A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 4242 fe:00:131099 0 EOF". A holder in another
// namespace of processes has a number below 1.
std::string lock_holder(const std::filesystem::path& folder) {
  const auto identity = identity_of(folder);
  const std::string file =
      identity ? format("%02x:%02x:%llu", major(identity->device), minor(identity->device),
                        static_cast<unsigned long long>(identity->inode))
               : "";
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    TextReader fields(line);
    std::string number, kind, strength, access, locked;
    int64_t process_id = 0;
    fields >> number >> kind >> strength >> access >> process_id >> locked;
    if (fields && kind == "FLOCK" && locked == file && process_id > 0) {
      return concat("process ", process_id, " of this host");
    }
  }
  return "a process of another host";
}

const std::atomic<bool>& stop_requested = stop_flag;

void stop_on_signals() {
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
    if (!launch::is_ignored(signal)) std::signal(signal, [](int) { stop_flag = true; });
  }
  // The reader of the output may be gone. The run continues and saves.
  std::signal(SIGPIPE, SIG_IGN);
}

train::Outcome train_rank(const train::RunConfig& given, RankGroup& group,
                          const train::ProfileOptions& profile, const Epoch& epoch) {
  stop_on_signals();
  RunRecord record;
  EpochObserver<Console> console(epoch, *group.recorder(), record);
  EpochObserver<train::TrainObserver> silent(epoch, *group.recorder(), record);
  comm::Communicator& world = group.world();
  if (epoch.events && world.rank() == 0)
    console.keep_lines([&epoch](const std::string& line) { epoch.events->log().add(line); });
  train::TrainObserver& printer = console;
  train::TrainObserver& observer = world.rank() == 0 ? printer : silent;
  train::RunConfig config = given;
  train::place_learners(config, world);
  if (config.has_choices()) {
    AutomaticLayout chosen = choose_layout(config, world);
    config = std::move(chosen.config);
    if (world.rank() == 0) console.on_finding(chosen.line);
  }
  const std::string note = train::note_of_device(config, group.num_local_ranks());
  if (world.rank() == 0 && !note.empty()) console.on_finding("device  " + note);
  train::ProfileOptions recorded = profile;
  recorded.recorder = group.recorder();
  if (epoch.number > 1) {
    await_folder({.folder = config.output.folder,
                  .patience = epoch.folder_patience,
                  .tell = [&](const std::string& line) { observer.on_finding(line); }},
                 world, [&](std::span<const int> ranks, std::chrono::milliseconds waited) {
                   observer.on_wait(ranks, in_seconds(waited));
                 });
  }
  const auto has_to_stop = [&] {
    return stop_requested || (epoch.has_to_finish && epoch.has_to_finish());
  };
  std::optional<train::Trainer> trainer;
  train::Outcome outcome{};
  try {
    trainer.emplace(config, world, observer, recorded);
    const auto watch = comm::watch(epoch.cancellation,
                                   [&](const std::string& /*reason*/) { trainer->cancel_reads(); });
    outcome = trainer->run(has_to_stop);
  } catch (const CommError&) {
    // With an agent the loss of a rank ends the epoch, and not the run.
    if (epoch.has_to_finish) console.tracking().finish(kGoesOn);
    throw;
  }
  if (epoch.events) epoch.events->end(outcome);
  trainer.reset();  // its memory is free for what follows
  // Under an agent a run that stops for another's sake goes on in the next epoch.
  const bool goes_on =
      epoch.has_to_finish && outcome == train::Outcome::kStopped && !stop_requested;
  console.tracking().finish(goes_on ? kGoesOn : mlflow_status(outcome));
  if (world.rank() == 0 && !goes_on) console.on_end(outcome);
  // In a later epoch the process has had the memory of the earlier ones.
  // The cost model covers only ranks that train.
  const bool is_known = epoch.number == 1 && config.parallel.servers == 0 &&
                        config.parallel.teachers == 0 && config.parallel.learners == 1;
  if (outcome == train::Outcome::kFinished && is_known) {
    if (world.rank() == 0) tell_lines(console, "", record.measured_memory());
    tell_lines(console, "planner ", compare_with_prediction(config, record, world, has_to_stop));
  }
  return outcome;
}

}  // namespace trireme::cli
