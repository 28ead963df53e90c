#include "trireme/launch/local_ranks.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/cores.h"
#include "trireme/base/random/entropy.h"

extern char** environ;

namespace trireme::launch {
namespace {

using Clock = std::chrono::steady_clock;
using Environment = std::map<std::string, std::string>;

constexpr int kErrorDescriptor = 3;

Environment inherited_environment() {
  Environment variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

// TMPDIR may name a folder that no longer exists. Most launches need none.
std::filesystem::path temporary_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : folder;
}

// Shared by the ranks of one launch. The store's file exists only if a transport uses it. It is
// removed with the launch.
struct Launch {
  std::string job;
  std::filesystem::path store;

  explicit Launch(std::string name)
      : job(std::move(name)), store(temporary_folder() / ("trireme-" + job + ".store")) {}
  ~Launch() {
    std::error_code ignored;
    std::filesystem::remove(store, ignored);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};

Environment rank_environment(int rank, int num_ranks, const Launch& launch) {
  Environment variables = inherited_environment();
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = std::to_string(num_ranks);
  variables["TRIREME_JOB"] = variables["TRIREME_LAUNCH"] = launch.job;
  // Set by another launcher, if one of its ranks started this one.
  std::erase_if(variables,
                [](const auto& each) { return each.first.starts_with("TORCHELASTIC_"); });
  variables["TRIREME_ERROR_FD"] = std::to_string(kErrorDescriptor);
  if (!variables.contains("MASTER_ADDR")) {
    variables.emplace("TRIREME_STORE", "file:" + launch.store.string());
  }
  // Nothing listens there. Other programs read these variables.
  variables.emplace("MASTER_ADDR", "127.0.0.1");
  variables.emplace("MASTER_PORT", "29500");
  variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, num_cores() / num_ranks)));
  return variables;
}

// Pointers into `strings`, with a null at the end, as exec requires.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct Rank {
  int rank = 0;
  pid_t pid = 0;
  int errors = -1;  // read end of the pipe behind TRIREME_ERROR_FD
};

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void become_rank(pid_t launcher, int errors, char* const* argv, char* const* envp) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(127);
  // Its own group, so that Ctrl-C reaches the ranks once, through the launcher.
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (errors == kErrorDescriptor) {
    fcntl(errors, F_SETFD, 0);
  } else {
    dup2(errors, kErrorDescriptor);
  }
  execvpe(argv[0], argv, envp);
  const char* const reason = strerrordesc_np(errno);  // allocates nothing
  for (const char* part : {"cannot start ", static_cast<const char*>(argv[0]), ": ", reason}) {
    if (write(kErrorDescriptor, part, std::strlen(part)) < 0) break;
  }
  _exit(127);
}

Rank start_rank(const LocalRanksOptions& options, int rank, const Launch& launch) {
  std::vector<std::string> arguments = options.command;
  std::vector<std::string> variables;
  for (const auto& [name, value] : rank_environment(rank, options.num_ranks, launch)) {
    variables.push_back(name + "=" + value);
  }
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  int errors[2];
  if (pipe2(errors, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(concat("cannot start rank ", rank, ": pipe: ", std::strerror(errno)));
  }
  const pid_t launcher = getpid();
  const pid_t child = fork();
  if (child == 0) become_rank(launcher, errors[1], argv.data(), envp.data());
  const int code = errno;
  close(errors[1]);
  if (child < 0) close(errors[0]);
  if (child < 0) throw Error(concat("cannot start rank ", rank, ": fork: ", std::strerror(code)));
  return {rank, child, errors[0]};
}

// The message that an ended rank left in its pipe, without the newline.
std::string read_message(const Rank& rank) {
  std::string message(4096, '\0');
  const ssize_t size = read(rank.errors, message.data(), message.size());
  message.resize(std::max<ssize_t>(0, size));
  while (message.ends_with('\n')) message.pop_back();
  return message;
}

// Takes the launcher's signals one at a time, without handlers. Restores the mask at the end.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&watched_);
    sigaddset(&watched_, SIGCHLD);
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
      // Ignored signals stay ignored. If they were blocked, they would arrive after all.
      if (!is_ignored(signal)) sigaddset(&watched_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &watched_, &previous_);
  }
  ~SignalWatch() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The next signal, or nothing after 100 ms.
  std::optional<int> next() const {
    const timespec slice{0, 100'000'000};
    const int signal = sigtimedwait(&watched_, nullptr, &slice);
    return signal > 0 ? std::optional(signal) : std::nullopt;
  }

 private:
  sigset_t watched_;
  sigset_t previous_;
};

// The running ranks. None outlives this object.
class Ranks {
 public:
  ~Ranks() {
    signal_all(SIGKILL);
    for (const Rank& rank : running_) {
      waitpid(rank.pid, nullptr, 0);
      close(rank.errors);
    }
  }
  void add(Rank rank) { running_.push_back(rank); }
  bool empty() const { return running_.empty(); }
  void signal_all(int signal) const {
    for (const Rank& rank : running_) kill(rank.pid, signal);
  }
  // Passes on a request to stop. A rank without a handler dies of it, which is not a failure.
  void request_stop(int signal) {
    requested_signal_ = signal;
    signal_all(signal);
  }
  bool stopped_before_start() const { return stopped_before_start_; }
  // Collects ranks that have ended. Remembers the first failure.
  void reap(RankExit& failure) {
    std::erase_if(running_, [&](const Rank& rank) {
      int status = 0;
      if (waitpid(rank.pid, &status, WNOHANG) != rank.pid) return false;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      const bool is_cause =
          failure.rank < 0 || (failure.code == kPeerLost && code != kPeerLost && !killing_);
      if (signal != 0 && signal == requested_signal_) {
        stopped_before_start_ = true;
      } else if (code != 0 && is_cause) {
        failure = {rank.rank, code, signal, read_message(rank)};
      }
      close(rank.errors);
      return true;
    });
  }
  // From now on, this program causes deaths by SIGKILL.
  void kill_all() {
    killing_ = true;
    signal_all(SIGKILL);
  }

 private:
  std::vector<Rank> running_;
  int requested_signal_ = 0;
  bool stopped_before_start_ = false;
  bool killing_ = false;
};

}  // namespace

bool is_ignored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

RankExit run_local_ranks(const LocalRanksOptions& options) {
  const SignalWatch signals;
  // The process id is for people who look into /dev/shm.
  const Launch launch(concat(getpid(), "-", unique_name()));
  Ranks ranks;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    ranks.add(start_rank(options, rank, launch));
  }

  RankExit first_failure;
  std::optional<Clock::time_point> deadline;
  while (!ranks.empty()) {
    const std::optional<int> signal = signals.next();
    if (signal && *signal != SIGCHLD) ranks.request_stop(*signal == SIGHUP ? SIGTERM : *signal);
    ranks.reap(first_failure);
    // The others notice by themselves (CommError) and report it. Those that do not are killed.
    const bool is_ending = first_failure.rank >= 0 || ranks.stopped_before_start();
    if (is_ending && !deadline) deadline = Clock::now() + options.grace;
    if (deadline && Clock::now() > *deadline) ranks.kill_all();
  }
  // Ranks that stopped on request made their peers fail.
  const bool is_loss = first_failure.code == kPeerLost || first_failure.signal == SIGKILL;
  if (ranks.stopped_before_start() && is_loss) return {};
  return first_failure;
}

std::string describe(const RankExit& exit) {
  if (exit.signal != 0) {
    return concat("rank ", exit.rank, " was killed by signal ", exit.signal, " (",
                  strsignal(exit.signal),
                  exit.signal == SIGKILL ? ", by someone or for lack of memory)" : ")");
  }
  if (!exit.message.empty()) return exit.message;
  return concat("rank ", exit.rank, " exited with code ", exit.code);
}

}  // namespace trireme::launch
