// The command train: one rank, N local ranks that it starts itself, or a rank started by a
// launcher.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/error.h"
#include "trireme/base/random/entropy.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/number_range.h"
#include "trireme/cli/overrides.h"
#include "trireme/cli/printable.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/device_group.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/rendezvous/rendezvous.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/launch/local_ranks.h"
#include "trireme/train/run/device.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/state/memory_folder.h"
#include "trireme/train/trainer.h"

namespace trireme::cli::inline internal {
namespace {

struct TrainArguments {
  train::Offer offer = train::TaskTable();
  std::string config;  // "": defaults
  std::string init;    // "": init.folder says
  int num_ranks = 1;
  bool ranks_given = false;
  int num_threads = 0;
  bool has_profile = false;
  int64_t profile_warmup = train::ProfileOptions().warmup_steps;
  int64_t profile_steps = 3;
  std::vector<std::string> overrides;  // as typed
};

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // set from a signal handler

// An observer that publishes a rank's records in the run's folder as soon as the run owns it.
template <typename Base>
class RecordedRank : public Base {
 public:
  explicit RecordedRank(comm::Recorder& recorder) : recorder_(recorder) {}
  void on_folder() override { recorder_.publish(); }

 private:
  comm::Recorder& recorder_;
};

// Runs one rank. On SIGTERM, SIGINT and SIGHUP (unless ignored, as under nohup) finishes its step.
int train_rank(train::RunConfig config, comm::Communicator& world, comm::Recorder& recorder,
               const train::ProfileOptions& profile, int num_local_ranks) {
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
    if (!launch::is_ignored(signal)) std::signal(signal, [](int) { stop_requested = true; });
  }
  // The reader of the output may be gone. The run continues and saves.
  std::signal(SIGPIPE, SIG_IGN);
  RecordedRank<Console> console(recorder);
  RecordedRank<train::TrainObserver> silent(recorder);
  train::TrainObserver& printer = console;
  const std::string note = train::note_of_device(config, num_local_ranks);
  if (world.rank() == 0 && !note.empty()) console.on_finding("device  " + note);
  train::Trainer trainer(config, world, world.rank() == 0 ? printer : silent, profile);
  const train::Outcome outcome = trainer.run(stop_requested);
  if (world.rank() == 0) console.on_end(outcome);
  return kDone;
}

int launch_ranks(const TrainArguments& arguments, const train::RunConfig& config) {
  launch::LocalRanksOptions options{.num_ranks = arguments.num_ranks,
                                    .command = {own_program(), "train"}};
  if (!arguments.config.empty()) options.command.push_back(arguments.config);
  if (arguments.num_threads > 0) {
    options.command.push_back("--threads=" + std::to_string(arguments.num_threads));
  }
  if (arguments.has_profile) {
    options.command.insert(
        options.command.end(),
        {"--profile", "--profile-warmup=" + std::to_string(arguments.profile_warmup),
         "--profile-steps=" + std::to_string(arguments.profile_steps)});
  }
  options.command.insert(options.command.end(), arguments.overrides.begin(),
                         arguments.overrides.end());
  const launch::RankExit exit = launch::run_local_ranks(options);
  if (exit.rank < 0) return kDone;
  const bool lost = exit.signal != 0 || exit.code == kPeerLost;
  const bool has_memory = lost && config.checkpoint.memory_interval > 0;
  const std::string memory =
      has_memory ? "; in memory: " + train::newest_in_memory(config.output.folder) : "";
  // A killed rank 0 leaves the updating line open.
  std::fprintf(stderr, "%strireme: %s%s%s\n", exit.signal != 0 && isatty(STDOUT_FILENO) ? "\n" : "",
               printable(launch::describe(exit)).c_str(),
               lost ? "; all ranks stopped, the same command resumes" : "", memory.c_str());
  return lost ? kPeerLost : exit.code;
}

// Every rank records its calls in the run's folder, for `trireme doctor`.
// `job`: the same on all ranks.
comm::GroupOptions group_options(const train::RunConfig& config, const comm::WorldInfo& rank,
                                 const std::string& job) {
  const comm::RecorderOptions options{
      .folder = std::filesystem::path(config.output.folder) / "recorder",
      .rank = rank.rank,
      .world_size = rank.size,
      .job = job,
      // A run that is refused must not replace the files of the running one.
      .is_unpublished = true};
  return {.timeout = std::chrono::seconds(config.parallel.timeout_seconds),
          .heap_bytes = static_cast<size_t>(config.parallel.heap_bytes),
          .recorder = std::make_shared<comm::Recorder>(options)};
}

train::ProfileOptions profile_options(const TrainArguments& arguments) {
  if (!arguments.has_profile) return {};
  // libtorch's profiler logs its start and stop as errors.
  ::setenv("KINETO_LOG_LEVEL", "6", /*overwrite=*/0);
  return {.num_steps = arguments.profile_steps, .warmup_steps = arguments.profile_warmup};
}

// `host` with NCCL beside it when ranks compute on GPUs. make_nccl: a group of the same ranks.
std::unique_ptr<comm::Communicator> with_gpus(
    std::unique_ptr<comm::Communicator> host, const train::RunConfig& config,
    comm::GroupOptions options,
    const std::function<std::unique_ptr<comm::Communicator>(const comm::GroupOptions&)>&
        make_nccl) {
  train::check_device(config);  // before NCCL, which could only say less
  train::check_same_device(config.device, *host);
  if (config.device.is_cpu()) return host;
  train::use_device(config);
  options.name = comm::name_on_device(options.name, config.device.type());
  auto gpus = make_nccl(options);
  return comm::make_device_group(std::move(host), std::move(gpus), config.device.type());
}

// One rank that no launcher has started, without a network.
std::unique_ptr<comm::Communicator> connect_alone(const train::RunConfig& config,
                                                  const comm::GroupOptions& options) {
  return with_gpus(std::move(comm::make_thread_group(1, options).front()), config, options,
                   [](const comm::GroupOptions& gpu) {
                     return comm::make_nccl_group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                                                  {.name = gpu.name, .timeout = gpu.timeout});
                   });
}

int train(const TrainArguments& arguments) {
  const std::vector<train::Override> overrides = parse_overrides(arguments.overrides);
  train::RunConfig config =
      arguments.config.empty()
          ? train::parse_config("", "the default config", arguments.offer, overrides)
          : train::load_config(arguments.config, arguments.offer, overrides);
  const bool launched = comm::is_launched();
  train::ProfileOptions profile = profile_options(arguments);
  if (!launched) {
    // A wrong config costs one line here, before any rank starts or records.
    train::RunConfig resolved = config;
    train::preflight(resolved, arguments.num_ranks);
    train::check_profile(profile, 1, resolved.train.steps);
    if (arguments.num_ranks > 1) return launch_ranks(arguments, config);
  }
  // libtorch uses OMP_NUM_THREADS, which the launcher sets, by default.
  if (arguments.num_threads > 0) at::set_num_threads(arguments.num_threads);
  if (!launched) {
    const comm::GroupOptions options = group_options(config, {}, unique_name());
    profile.recorder = options.recorder;
    config.device = train::rank_device(config.train.device, 0, 1);
    return train_rank(config, *connect_alone(config, options), *options.recorder, profile, 1);
  }
  const comm::WorldInfo info = comm::world_info();
  TRIREME_CHECK(!arguments.ranks_given || arguments.num_ranks == info.size, "--ranks is ",
                arguments.num_ranks, ", and the launcher started ", info.size,
                " ranks; leave --ranks out");
  comm::Rendezvous rendezvous(
      info, {.timeout = std::chrono::seconds(config.parallel.timeout_seconds),
             .on_refused = [](const std::string& line) {
               std::fprintf(stderr, "trireme: the store %s\n", printable(line).c_str());
             }});
  const std::string& transport = config.parallel.transport;
  // Recorded from here on, to show a start that waits for a rank.
  const std::string meeting = info.store.empty() ? info.job : info.store;
  const comm::GroupOptions options = group_options(config, info, meeting);
  options.recorder->name_job(rendezvous.job(transport));
  profile.recorder = options.recorder;
  config.device = train::rank_device(config.train.device, info.local_rank, info.local_size);
  const auto world =
      with_gpus(rendezvous.connect(transport, options), config, options,
                [&](const comm::GroupOptions& gpus) { return rendezvous.connect("nccl", gpus); });
  return train_rank(config, *world, *options.recorder, profile, info.local_size);
}

}  // namespace

void add_train(CLI::App& app, int& exit_code, const train::Offer& offer, bool needs_config) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->offer = offer;
  const std::string start =
      concat("  ", app.get_name(), " train ", needs_config ? "examples/demo.toml " : "");
  CLI::App* command = app.add_subcommand(
      "train",
      concat("Train. Continues if output.folder holds a checkpoint.\n", start, "--ranks 2\n", start,
             "--ranks 2 --train.steps=1000 --optimizer.learning_rate=3e-4\n", start,
             "--ranks 2 --profile --profile-steps 5\n", start,
             "--init runs/other --output.folder=runs/tuned\n"));
  CLI::Option* config =
      command->add_option("config", arguments->config,
                          needs_config ? "TOML file; only --init may stand for it" : "TOML file");
  CLI::Option* ranks = command->add_option("--ranks", arguments->num_ranks, "local ranks to start");
  ranks->check(within({1, 1 << 15}))->capture_default_str();
  command->add_option("--threads", arguments->num_threads, "threads per rank; 0 = cores / ranks")
      ->check(within({0, 1 << 15}))
      ->capture_default_str();
  command->add_option("--init", arguments->init,
                      "run, checkpoint or folder of Hugging Face whose weights a new run begins "
                      "with, with a fresh\n"
                      "optimizer; the same as --init.folder. A resumed run has its own");
  CLI::Option* profile = command->add_flag(
      "--profile", arguments->has_profile,
      "profile some steps of every rank, print what limits them, and write\n"
      "output.folder/profile/trace.json for https://ui.perfetto.dev; training continues");
  command
      ->add_option("--profile-warmup", arguments->profile_warmup,
                   "steps to run before the profiled ones")
      ->check(within({0, 1e11}))
      ->capture_default_str()
      ->needs(profile);
  command->add_option("--profile-steps", arguments->profile_steps, "steps to profile")
      ->check(within({1, 1e6}))
      ->capture_default_str()
      ->needs(profile);
  command->allow_extras();
  command->footer("Every key of the config can be given here (shown with its default):\n" +
                  train::describe_config(offer));
  command->callback([arguments, command, config, ranks, needs_config, &exit_code] {
    arguments->ranks_given = ranks->count() > 0;
    arguments->overrides = command->remaining();
    if (!arguments->init.empty()) {
      arguments->overrides.push_back("--init.folder=" + arguments->init);
    }
    const bool has_init = std::ranges::any_of(arguments->overrides, [](const std::string& text) {
      return text.starts_with("--init.folder");
    });
    if (needs_config && arguments->config.empty() && !has_init)
      throw CLI::RequiredError(config->get_name());
    exit_code = train(*arguments);
  });
}

}  // namespace trireme::cli::inline internal
