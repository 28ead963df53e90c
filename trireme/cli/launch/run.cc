// The command run: the agent of this host, for `trireme train`, a user's own program or any other.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/build_info.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/random/random.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/launch/run_emit.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/launch/agent/agent.h"
#include "trireme/launch/inject/campaign.h"
#include "trireme/launch/jobs/job_hosts.h"
#include "trireme/launch/membership/report.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::cli {

// The command makes AgentOptions of words; the agent does the rest. A number is parsed whole,
// because one that is cut to 32 bits starts another job. What a scheduler says of its job counts
// where the user says nothing. program_of() lists what must be the same on all hosts, as lines of
// key and value, so that a host that is refused learns which of them differs. Lines are written
// past stdio: a reader that no longer reads must not hold up the end of the program.

namespace {

struct RunArguments {
  std::string workers;  // a number, or "auto": one per core; "": the job's, or 1
  std::string hosts;    // A or A:B; "": the job's, or 1
  std::string endpoint;
  std::string listen;
  std::string job;
  std::string host;
  int node_rank = -1;
  int num_spares = 0;
  int max_restarts = launch::BudgetOptions().max_restarts;
  std::string log_folder;
  double lease_seconds = 3;
  double join_seconds = 300;
  double last_call_seconds = 3;
  double grace_seconds = 5;
  bool no_binding = false;
  std::string policy;
  std::string notice_command;
  double notice_interval_seconds = 5;
  std::string injections;
  uint64_t injection_seed = 1;
  EmitOptions emit;
  std::vector<std::string> command;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The number that `text` is, from 1 to `most`; 0 when it is none.
int count_in(std::string_view text, int most) {
  int count = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, count);
  return error == std::errc() && last == end && count >= 1 && count <= most ? count : 0;
}

// "2" or "2:4".
std::pair<int, int> parse_hosts(const std::string& text) {
  constexpr int kMostHosts = 1 << 16;
  const size_t colon = text.find(':');
  const int least = count_in(std::string_view(text).substr(0, colon), kMostHosts);
  const int most = colon == std::string::npos
                       ? least
                       : count_in(std::string_view(text).substr(colon + 1), kMostHosts);
  TRIREME_CHECK(least >= 1 && most >= least, "--nnodes is \"", shown(text),
                "\"; expected a number of hosts from 1 to ", kMostHosts,
                " as in 2, or a range as in 2:4");
  return {least, most};
}

int parse_workers(const std::string& text) {
  if (text == "auto" || text == "cpu") return num_cores();
  constexpr int kMostWorkers = 1 << 12;
  const int count = count_in(text, kMostWorkers);
  TRIREME_CHECK(count >= 1, "--nproc-per-node is \"", shown(text),
                "\"; expected a number of workers from 1 to ", kMostWorkers,
                ", or auto for one per core");
  return count;
}

std::string host_name() {
  char name[256] = "unknown";
  ::gethostname(name, sizeof(name) - 1);
  return printable(name);
}

// Text that must be the same on all hosts: the version, the command, and the configs it names.
std::string program_of(const std::vector<std::string>& command) {
  std::string text = concat("version = ", build_version(), "\n");
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    text += concat("word ", i + 1, " of the command = ", shown(word, 500), "\n");
    std::error_code ignored;
    const bool is_config = std::filesystem::path(word).extension() == ".toml" && is_file(word) &&
                           std::filesystem::file_size(word, ignored) < (1 << 20);
    if (is_config) text += launch::config_lines(read_file(word));
  }
  return text;
}

// Prints for people: safe characters, and whole lines. Bypasses stdio, where a stream that waits
// for its reader would delay the end of the program.
class Printer final : public launch::AgentObserver {
 public:
  void on_line(const std::string& line, bool is_error) override {
    const std::string text = concat(is_error ? "trireme: " : "", printable(line), "\n");
    for (size_t done = 0; done < text.size();) {
      const ssize_t size =
          ::write(is_error ? STDERR_FILENO : STDOUT_FILENO, text.data() + done, text.size() - done);
      if (size < 0 && errno == EAGAIN) await_room(is_error ? STDERR_FILENO : STDOUT_FILENO);
      if (size < 0 && errno != EINTR && errno != EAGAIN) return;  // the reader has left
      done += static_cast<size_t>(std::max<ssize_t>(0, size));
    }
  }

 private:
  // Where another program has made the terminal non-blocking.
  static void await_room(int descriptor) {
    pollfd ready{descriptor, POLLOUT, 0};
    ::poll(&ready, 1, /*timeout=*/-1);
    errno = EAGAIN;
  }
};

// `trireme train ...` needs no path to the program.
std::vector<std::string> full_command(std::vector<std::string> command, const std::string& name) {
  if (command.front() == name) command.front() = own_program();
  return command;
}

// A job of a scheduler says who its hosts are, unless the user does.
RunArguments with_job(RunArguments arguments) {
  const bool is_said = !arguments.hosts.empty() && parse_hosts(arguments.hosts).second == 1;
  if (is_said || !arguments.endpoint.empty()) return arguments;
  const launch::Environment variables = launch::inherited_environment();
  const auto job = launch::read_job_hosts({{variables.begin(), variables.end()}, host_name()});
  if (!job) return arguments;
  const size_t count = job->hosts.size();
  if (arguments.hosts.empty()) {
    const int most = static_cast<int>(count) - arguments.num_spares;
    TRIREME_CHECK(most >= 1, "--spares is ", arguments.num_spares, ", and the job has ", count,
                  " hosts; expected fewer spares than hosts");
    arguments.hosts = concat(std::min(job->min_hosts, most), ":", most);
  }
  if (arguments.job.empty()) arguments.job = job->id;
  if (arguments.node_rank < 0) arguments.node_rank = job->node_rank;
  if (count > 1) arguments.endpoint = concat(job->head(), ":", job->port);
  if (arguments.workers.empty() && job->nproc_per_node > 0) {
    arguments.workers = std::to_string(job->nproc_per_node);
  }
  std::printf("run     job %s of %s: %zu hosts, this is number %d\n", printable(job->id).c_str(),
              job->scheduler.c_str(), count, arguments.node_rank);
  std::fflush(stdout);
  return arguments;
}

int emit_file(const RunArguments& arguments) {
  const auto [least, most] = parse_hosts(arguments.hosts.empty() ? "1" : arguments.hosts);
  EmitOptions options = arguments.emit;
  options.job.min_nnodes = least;
  options.job.nnodes = most;
  options.job.nproc_per_node = parse_workers(arguments.workers.empty() ? "1" : arguments.workers);
  options.job.config = arguments.command.front();
  options.job.overrides = {arguments.command.begin() + 1, arguments.command.end()};
  std::fputs(emit(options).c_str(), stdout);
  return kDone;
}

// The properties of the whole program that `train` needs.
struct Program {
  std::string name;
  train::Offer offer;
  bool needs_config = false;
};

int run(const RunArguments& given, const Program& program) {
  if (!given.emit.system.empty()) return emit_file(given);
  // A reader of the output that leaves does not end the job.
  const launch::SignalWatch no_signal_of_pipes({SIGPIPE});
  const RunArguments arguments = with_job(given);
  const std::string& hosts = arguments.hosts.empty() ? "1" : arguments.hosts;
  const auto [least, most] = parse_hosts(hosts);
  const bool is_alone = most + arguments.num_spares == 1 && arguments.endpoint.empty();
  TRIREME_CHECK(is_alone || !arguments.endpoint.empty(), "--nnodes is ", hosts, ", --spares ",
                arguments.num_spares,
                ", and the agents have no place to meet; give --rdzv-endpoint HOST:PORT, the same "
                "on all hosts");
  const std::vector<std::string> command = full_command(arguments.command, program.name);
  launch::AgentOptions options{
      .command = command,
      .environment = launch::inherited_environment(),
      .num_workers = parse_workers(arguments.workers.empty() ? "1" : arguments.workers),
      .min_hosts = least,
      .max_hosts = most,
      .num_spares = arguments.num_spares,
      .endpoint = arguments.endpoint,
      .listen = arguments.listen,
      .job = !arguments.job.empty() ? arguments.job
             : is_alone             ? concat(::getpid(), "-", unique_name().substr(0, 8))
                                    : "trireme",
      .node_rank = arguments.node_rank,
      .host = arguments.host.empty() ? host_name() : printable(arguments.host),
      .program = program_of(arguments.command),
      .folder = !arguments.log_folder.empty()
                    ? std::filesystem::path(arguments.log_folder)
                    : folder_of_training(command, program.offer, program.needs_config),
      .binds_cores = !arguments.no_binding,
      .join_timeout = milliseconds(arguments.join_seconds),
      .last_call = milliseconds(arguments.last_call_seconds),
      .lease = milliseconds(arguments.lease_seconds),
      .grace = milliseconds(arguments.grace_seconds)};
  options.notice_command = arguments.notice_command;
  options.notice_interval = milliseconds(arguments.notice_interval_seconds);
  options.budget.max_restarts = arguments.max_restarts;
  if (!arguments.policy.empty()) options.policy = launch::parse_policy(arguments.policy);
  if (launch::is_campaign(arguments.injections)) {
    options.injections =
        launch::draw(launch::parse_campaign(arguments.injections, static_cast<size_t>(most)));
  } else if (!arguments.injections.empty()) {
    options.injections = launch::parse_injections(arguments.injections);
  }
  options.injection_seed = arguments.injection_seed;
  return launch::run_agent(options, std::make_shared<Printer>());
}

// torchrun takes its options with underscores too: "--node-rank,--node_rank".
std::string as_torchrun(const std::string& name) {
  std::string underscored = name;
  std::replace(underscored.begin(), underscored.end(), '-', '_');
  return concat(name, ",--", underscored.substr(2));
}

void add_host_options(CLI::App& command, RunArguments& arguments) {
  command.add_option(as_torchrun("--nproc-per-node"), arguments.workers,
                     "workers on this host; auto = one per core. Default: 1");
  command.add_option("--nnodes", arguments.hosts,
                     "number of hosts, or minimum and maximum, such as 2:4. Default: the hosts of "
                     "the scheduler's job (docs/guide/clusters.md), or 1");
  command
      .add_option(
          "--spares", arguments.num_spares,
          "number of standby hosts beyond --nnodes, whose workers wait with the program loaded to "
          "replace a lost host; in a scheduler's job, taken from its hosts")
      ->check(within({0, 1 << 16}))
      ->capture_default_str()
      ->excludes("--emit");
  command.add_option(as_torchrun("--rdzv-endpoint"), arguments.endpoint,
                     "HOST:PORT where the agents meet; the agent on HOST is the leader");
  command.add_option("--rdzv-listen", arguments.listen,
                     "address on which the leader listens, if HOST only forwards to it");
  command.add_option(as_torchrun("--rdzv-id"), arguments.job,
                     "name of the job, the same on all hosts");
  command.add_option("--host-name", arguments.host, "this host's name in messages and logs");
  command
      .add_option(as_torchrun("--node-rank"), arguments.node_rank,
                  "index of this host; 0 is the leader. Default: the order of arrival")
      ->check(within({-1, 1 << 16}));
}

void add_failure_options(CLI::App& command, RunArguments& arguments) {
  command
      .add_option(as_torchrun("--max-restarts"), arguments.max_restarts,
                  "maximum number of restarts after failures within an hour")
      ->check(within({0, 1e6}))
      ->capture_default_str();
  command
      .add_option("--lease", arguments.lease_seconds,
                  "seconds without an answer from the leader after which an agent kills its "
                  "workers; one second later the leader continues without that host")
      ->check(within({0.5, 3600}))
      ->capture_default_str();
  command
      .add_option("--join-timeout", arguments.join_seconds,
                  "seconds to wait for the minimum number of hosts")
      ->check(within({0.1, 1e6}))
      ->capture_default_str();
  command
      .add_option("--last-call", arguments.last_call_seconds,
                  "seconds to wait for further hosts before the first epoch, once there are enough")
      ->check(within({0, 3600}))
      ->capture_default_str();
  command
      .add_option("--grace", arguments.grace_seconds,
                  "seconds that a worker has to leave its groups after a failure, before SIGKILL")
      ->check(within({0.1, 3600}))
      ->capture_default_str();
  command.add_option("--policy", arguments.policy,
                     "reaction to each kind of fault, such as "
                     "hang=restart,straggler=warn,hang-after=60 (docs/guide/watchdog.md)");
  command.add_option("--notice-command", arguments.notice_command,
                     "command that exits with 0 once this host is about to be preempted; the host "
                     "then leaves as after SIGTERM or SIGUSR1");
  command
      .add_option("--notice-interval", arguments.notice_interval_seconds,
                  "seconds between calls of --notice-command")
      ->check(within({0.1, 3600}))
      ->capture_default_str();
  command.add_option(
      "--inject", arguments.injections,
      "faults to inject, such as \"kill rank=1 at step=50; stop rank=2 for 20s\" or "
      "\"campaign seed=7 events=20\" (docs/guide/watchdog.md); read on the leader only");
  command
      .add_option("--inject-seed", arguments.injection_seed,
                  "random seed for details that the faults leave open")
      ->capture_default_str();
}

}  // namespace

void add_run(CLI::App& app, int& exit_code, const train::Offer& offer, bool needs_config) {
  auto arguments = std::make_shared<RunArguments>();
  const std::string name = app.get_name();
  CLI::App* command = app.add_subcommand(
      "run",
      concat("Start ranks on one or more hosts, and keep the job running when some are lost.\n"
             "  ",
             name, " run --nproc-per-node 2 -- ", name, " train examples/demo.toml\n  ", name,
             " run --nproc-per-node 8 --nnodes 2:4 --rdzv-endpoint node1:29400 -- ", name,
             " train big.toml\n  ", name, " run --nproc-per-node 2 -- python3 train.py\n"));
  add_emit_options(*command, arguments->emit);
  add_host_options(*command, *arguments);
  add_failure_options(*command, *arguments);
  command->add_option(as_torchrun("--log-dir"), arguments->log_folder,
                      "folder for logs/ and events.jsonl. Default: the run's output.folder");
  command->add_flag("--no-binding", arguments->no_binding, "do not bind workers to cores");
  command->add_option("command", arguments->command, "program and arguments of each rank, after --")
      ->required();
  command->positionals_at_end();
  command->footer(
      "Ranks get torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...).\n"
      "`" +
      name +
      " train` survives the loss of a peer without restarting its process. With\n"
      "checkpoint.memory_interval it continues from memory. Other programs are restarted. A\n"
      "program that ends with exit code 2 or 4 is not restarted.");
  const Program program{name, offer, needs_config};
  command->callback([arguments, program, &exit_code] { exit_code = run(*arguments, program); });
}

}  // namespace trireme::cli
