// The command train: one rank, N local ranks that it starts itself, or a rank started by a
// launcher.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/automatic_layout.h"
#include "trireme/cli/train/elastic_rank.h"
#include "trireme/cli/train/run_events.h"
#include "trireme/cli/train/run_tracking.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/launch/local_ranks.h"
#include "trireme/train/callbacks/event_commands.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/state/places.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

// The command has four roles: it starts local ranks, is the only rank, is a launcher's rank, or is
// a rank under an agent. The agent is looked for first, because its ranks may have a launcher's
// variables too. Whoever starts ranks checks the config before, so that a mistake is one line and
// not one of each rank. A start that is refused leaves no folder behind: NewFolders remembers which
// ones were missing, and removes them if they are empty at the end. `trireme run` parses the same
// words, to know the run's folder before a worker starts (folder_of_training()).

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

int launch_ranks(const TrainArguments& arguments, const train::RunConfig& config) {
  launch::LocalRanksOptions options{.num_ranks = arguments.num_ranks,
                                    .command = {own_program(), "train"}};
  if (config.parallel.server_copies > 1) {
    options.num_expendable = static_cast<int>(config.parallel.servers);
    options.on_expended = [](const launch::RankExit& exit) {
      std::fprintf(stderr, "trireme: %s; other servers have copies of its parameters\n",
                   printable(launch::describe(exit)).c_str());
    };
  }
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
  const FailureEvent failure(config.output.folder);
  const launch::RankExit exit = launch::run_local_ranks(options);
  if (exit.rank < 0) return kDone;
  failure.write(exit);
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

train::ProfileOptions profile_options(const TrainArguments& arguments) {
  if (!arguments.has_profile) return {};
  // libtorch's profiler logs its start and stop as errors.
  ::setenv("KINETO_LOG_LEVEL", "6", /*overwrite=*/0);
  return {.num_steps = arguments.profile_steps, .warmup_steps = arguments.profile_warmup};
}

constexpr const char* kAgentVariable = "TRIREME_AGENT_FD";

// The whole number in an environment variable; nothing when it is not set.
std::optional<int64_t> number_in(const char* variable, int64_t minimum) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int64_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, value);
  TRIREME_CHECK(error == std::errc() && last == end && value >= minimum && value < INT32_MAX,
                "environment variable ", variable, " is \"", printable(text),
                "\"; expected a whole number from ", minimum, " on; `trireme run` sets it");
  return value;
}

// Tells the launcher that a step is finished, so every shard has its copies.
void tell_ready() {
  const auto descriptor = number_in("TRIREME_READY_FD", 3);
  if (descriptor) static_cast<void>(!::write(static_cast<int>(*descriptor), "", 1));
}

// A run's folder and those above it that are not there yet. What is still empty at the end of the
// scope goes again.
class NewFolders {
 public:
  explicit NewFolders(const std::string& folder) {
    std::error_code ignored;
    std::filesystem::path path = std::filesystem::absolute(folder, ignored).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    for (; path.has_relative_path() && !std::filesystem::exists(path, ignored);
         path = path.parent_path()) {
      missing_.push_back(path);
    }
  }
  // A start that was refused leaves nothing: what ranks write before a run has begun goes too.
  void forget_start() const {
    std::error_code ignored;
    if (missing_.empty() || std::filesystem::exists(missing_.front() / "config.toml", ignored))
      return;
    for (const char* name : {"run_id", "recorder"})
      std::filesystem::remove_all(missing_.front() / name, ignored);
  }
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  ~NewFolders() {
    for (const std::filesystem::path& path : missing_) ::rmdir(path.c_str());  // fails if not empty
  }

 private:
  std::vector<std::filesystem::path> missing_;  // innermost first
};

// What rank 0 alone would find wrong later.
void check_tracking(const train::RunConfig& config) {
  if (config.tracking.mlflow.empty()) return;
  try {
    train::mlflow_server(config.tracking.mlflow, own_variable);
  } catch (const ConfigError& error) {
    throw ConfigError(concat("tracking.mlflow: ", error.what()));
  }
}

train::RunConfig load_config(const TrainArguments& arguments) {
  const std::vector<train::Override> overrides = parse_overrides(arguments.overrides);
  if (arguments.config.empty()) {
    train::RunConfig config =
        train::parse_config("", "the default config", arguments.offer, overrides);
    check_tracking(config);
    return config;
  }
  train::RunConfig config = train::load_config(arguments.config, arguments.offer, overrides);
  check_tracking(config);
  train::require_own_commands(config.callbacks, std::filesystem::weakly_canonical(arguments.config),
                              overrides);
  return config;
}

// Says of a run of one rank, which no launcher watches, that a failed disk has killed it
// (MappedScratch). Several threads may find out at once.
void report_bus_errors() {
  static std::atomic_flag is_said;
  static const std::string& line =  // a thread may outlive main()
      *new std::string(concat(isatty(STDOUT_FILENO) ? "\n" : "", "trireme: rank 0 was ",
                              killed_by(SIGBUS), "; the same command resumes\n"));
  std::signal(SIGBUS, [](int) {
    while (is_said.test_and_set()) ::pause();
    static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
    ::_exit(kPeerLost);
  });
}

// Trains as a rank that no agent watches, and tells the run's events.
void train_with_events(const train::RunConfig& config, RankGroup& group,
                       const train::ProfileOptions& profile,
                       std::function<void(int64_t)> on_finished = nullptr) {
  RunEvents events(config.output.folder);
  const Epoch epoch{.events = &events, .on_finished = std::move(on_finished)};
  try {
    train_rank(config, group, profile, epoch);
  } catch (const std::exception& error) {
    // Else the process that has started the ranks says who failed.
    if (std::getenv("TRIREME_ERROR_FD") == nullptr) events.fail(error.what());
    throw;
  }
}

// One rank, or N local ranks that this process starts.
int train_unlaunched(const TrainArguments& arguments, train::RunConfig config,
                     const train::ProfileOptions& profile) {
  // A wrong config costs one line here, before any rank starts or records.
  train::RunConfig resolved = with_any_layout(config, arguments.num_ranks);
  train::preflight(resolved, arguments.num_ranks);
  train::check_profile(profile, 1, resolved.train.steps);
  if (arguments.num_ranks > 1) return launch_ranks(arguments, config);
  report_bus_errors();
  RankGroup group(config);
  train_with_events(config, group, profile);
  return kDone;
}

int train_rank_or_ranks(const TrainArguments& arguments, train::RunConfig config) {
  const train::ProfileOptions profile = profile_options(arguments);
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) {
    const bool saves_memory = config.offload.optimizer == train::OffloadPlace::kDisk;
    set_freed_memory(saves_memory ? FreedMemory::kReturned : FreedMemory::kKept);
  }
  // libtorch uses OMP_NUM_THREADS, which the launcher sets, by default.
  if (arguments.num_threads > 0) at::set_num_threads(arguments.num_threads);
  const bool launched = comm::is_launched();
  if (const auto agent = number_in(kAgentVariable, 3)) {
    ::unsetenv(kAgentVariable);  // the descriptor is not for commands that this process starts
    TRIREME_CHECK(!config.has_choices(),
                  config.parallel.automatic ? "parallel.auto is true"
                                            : in_words(config.chosen_keys()) + " is \"auto\"",
                  " under `trireme run`, whose ranks may change in number; "
                  "let `trireme plan --output` write a config, or start with --ranks");
    ElasticRun run{.load_config = [&] { return load_config(arguments); }, .profile = profile};
    if (launched) run.first = comm::world_info();
    run.first_epoch = number_in("TRIREME_EPOCH", 1).value_or(1);
    return run_elastic_rank(run, static_cast<int>(*agent));
  }
  if (!launched) return train_unlaunched(arguments, std::move(config), profile);
  TRIREME_CHECK(!arguments.ranks_given || !comm::counts_pods(), "--ranks is ", arguments.num_ranks,
                ", and WORLD_SIZE is set without LOCAL_RANK, as where it counts pods; start ",
                arguments.num_ranks,
                " ranks in each pod with `trireme run --nnodes \"$WORLD_SIZE\" "
                "--node-rank \"$RANK\" --nproc-per-node ",
                arguments.num_ranks,
                " --rdzv-endpoint \"$MASTER_ADDR:$MASTER_PORT\" -- trireme train ...`, or unset "
                "WORLD_SIZE for these alone");
  const comm::WorldInfo info = comm::world_info();
  TRIREME_CHECK(!arguments.ranks_given || arguments.num_ranks == info.size, "--ranks is ",
                arguments.num_ranks, ", and the launcher started ", info.size,
                " ranks; leave --ranks out");
  RankGroup group(config, info);
  train_with_events(config, group, profile, [told = false](int64_t) mutable {
    if (!std::exchange(told, true)) tell_ready();
  });
  return kDone;
}

int train(const TrainArguments& arguments) {
  train::RunConfig config = load_config(arguments);
  const NewFolders folders(config.output.folder);
  try {
    const int code = train_rank_or_ranks(arguments, std::move(config));
    if (code == kUserError || code == kBadCheckpoint) folders.forget_start();
    return code;
  } catch (const ConfigError&) {
    folders.forget_start();
    throw;
  } catch (const CheckpointError&) {
    folders.forget_start();
    throw;
  }
}

// Options of `train` whose presence matters, not only their values.
struct ParsedOptions {
  CLI::Option* config;
  CLI::Option* ranks;
};

ParsedOptions add_options(CLI::App& command, TrainArguments& arguments, bool needs_config) {
  CLI::Option* config =
      command.add_option("config", arguments.config,
                         needs_config ? "TOML file; may be omitted only with --init" : "TOML file");
  CLI::Option* ranks =
      command.add_option("--ranks", arguments.num_ranks, "number of local ranks to start");
  ranks->check(within({1, 1 << 15}))->capture_default_str();
  command.add_option("--threads", arguments.num_threads, "threads per rank; 0 = cores / ranks")
      ->check(within({0, 1 << 15}))
      ->capture_default_str();
  command.add_option(
      "--init", arguments.init,
      "source of a new run's initial weights: a run, a checkpoint or a Hugging Face folder; the "
      "optimizer starts afresh. Ignored by a resumed run. Same as --init.folder");
  CLI::Option* profile = command.add_flag(
      "--profile", arguments.has_profile,
      "profile some steps of every rank, print what limits them, and write "
      "output.folder/profile/trace.json for https://ui.perfetto.dev; training continues");
  command
      .add_option("--profile-warmup", arguments.profile_warmup,
                  "number of steps before profiling starts")
      ->check(within({0, 1e11}))
      ->capture_default_str()
      ->needs(profile);
  command.add_option("--profile-steps", arguments.profile_steps, "number of steps to profile")
      ->check(within({1, 1e6}))
      ->capture_default_str()
      ->needs(profile);
  command.allow_extras();
  return {config, ranks};
}

// Completes the arguments after the words are parsed.
void finish_parsing(const CLI::App& command, const ParsedOptions& options, bool needs_config,
                    TrainArguments& arguments) {
  arguments.ranks_given = options.ranks->count() > 0;
  arguments.overrides = command.remaining();
  if (!arguments.init.empty()) {
    arguments.overrides.push_back("--init.folder=" + arguments.init);
  }
  const bool has_init = std::ranges::any_of(arguments.overrides, [](const std::string& text) {
    return text.starts_with("--init.folder");
  });
  if (needs_config && arguments.config.empty() && !has_init)
    throw CLI::RequiredError(options.config->get_name());
}

}  // namespace

std::filesystem::path folder_of_training(const std::vector<std::string>& words,
                                         const train::Offer& offer, bool needs_config) {
  std::error_code ignored;
  const bool is_training = words.size() >= 2 && words[1] == "train" &&
                           std::filesystem::equivalent(words[0], own_program(), ignored);
  if (!is_training) return "";
  TrainArguments arguments;
  arguments.offer = offer;
  CLI::App command;
  const ParsedOptions options = add_options(command, arguments, needs_config);
  try {
    command.parse(std::vector<std::string>(words.rbegin(), words.rend() - 2));
    finish_parsing(command, options, needs_config, arguments);
  } catch (const CLI::ParseError&) {
    return "";
  }
  return std::filesystem::absolute(load_config(arguments).output.folder);
}

void add_train(CLI::App& app, int& exit_code, const train::Offer& offer, bool needs_config) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->offer = offer;
  const std::string start =
      concat("  ", app.get_name(), " train ", needs_config ? "examples/demo.toml " : "");
  CLI::App* command = app.add_subcommand(
      "train",
      concat("Train a model, or continue if output.folder holds a checkpoint.\n", start,
             "--ranks 2\n", start, "--ranks 2 --train.steps=1000 --optimizer.learning_rate=3e-4\n",
             start, "--ranks 2 --profile --profile-steps 5\n", start,
             "--init runs/other --output.folder=runs/tuned\n"));
  const ParsedOptions options = add_options(*command, *arguments, needs_config);
  command->footer("Every config key can be given as an option (shown with its default):\n" +
                  train::describe_config(offer));
  command->callback([arguments, command, options, needs_config, &exit_code] {
    finish_parsing(*command, options, needs_config, *arguments);
    exit_code = train(*arguments);
  });
}

}  // namespace trireme::cli
