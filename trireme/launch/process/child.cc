#include "trireme/launch/process/child.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/launch/process/exit_codes.h"

extern char** environ;

namespace trireme::launch::inline internal {
namespace {

// Pointers into `strings`, with a null at the end, as exec requires.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// What the child needs between fork and exec, where nothing may be allocated.
struct Prepared {
  pid_t parent;
  char* const* argv;
  char* const* envp;
  const int* inherited;
  size_t num_inherited;
  int input;
  int output;
  int errors;
  const cpu_set_t* cores;  // null: as the parent
};

// Puts each of the descriptors at its number. First all of them above those numbers: one may be
// where another goes.
void place_descriptors(const Prepared& child) {
  constexpr int kAbove = 256;
  int moved[64];
  const size_t count = std::min(child.num_inherited, std::size(moved));
  const auto move = [](int from) { return from < 0 ? -1 : fcntl(from, F_DUPFD, kAbove); };
  for (size_t i = 0; i < count; ++i) moved[i] = move(child.inherited[i]);
  const int input = move(child.input);
  const int output = move(child.output);
  const int errors = move(child.errors);
  const auto place = [](int from, int to) {
    if (from < 0) return;
    dup2(from, to);
    close(from);
  };
  place(input, STDIN_FILENO);
  place(output, STDOUT_FILENO);
  place(errors, STDERR_FILENO);
  for (size_t i = 0; i < count; ++i) place(moved[i], kFirstInherited + static_cast<int>(i));
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const Prepared& child) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != child.parent) _exit(kNotFound);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A scheduler may send its notice to every process of the job. It is for the launcher.
  signal(SIGUSR1, SIG_IGN);
  if (child.cores != nullptr) sched_setaffinity(0, sizeof(*child.cores), child.cores);
  place_descriptors(child);
  execvpe(child.argv[0], child.argv, child.envp);
  const char* const reason = strerrordesc_np(errno);  // allocates nothing
  const int told = child.num_inherited > 0 ? kFirstInherited : STDERR_FILENO;
  for (const char* part :
       {"cannot start ", static_cast<const char*>(child.argv[0]), ": ", reason}) {
    if (write(told, part, std::strlen(part)) < 0) break;
  }
  _exit(kNotFound);
}

cpu_set_t to_cpu_set(const CoreSet& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t core = 0; core < cores.size(); ++core) {
    if (cores.test(core)) CPU_SET(core, &set);
  }
  return set;
}

}  // namespace

Child::Child(const ChildOptions& options, const std::string& name) {
  std::vector<std::string> arguments = options.command;
  std::vector<std::string> variables;
  for (const auto& [key, value] : options.environment) variables.push_back(key + "=" + value);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const cpu_set_t cores = to_cpu_set(options.cores.value_or(CoreSet()));
  const Prepared prepared{.parent = getpid(),
                          .argv = argv.data(),
                          .envp = envp.data(),
                          .inherited = options.inherited.data(),
                          .num_inherited = options.inherited.size(),
                          .input = options.input,
                          .output = options.output,
                          .errors = options.errors,
                          .cores = options.cores ? &cores : nullptr};
  pid_ = fork();
  if (pid_ == 0) become(prepared);
  if (pid_ < 0) {
    const int code = errno;
    pid_ = 0;
    throw Error(concat("cannot start ", name, ": fork: ", std::strerror(code)));
  }
  setpgid(pid_, pid_);  // also here: its group may be killed before it has made it itself
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

Child::~Child() {
  kill_group();
  // One that waits for a device dies later. It is collected when this process ends.
  for (int i = 0; pid_ != 0 && i < 1000 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Child::signal(int number) const {
  if (pid_ != 0) kill(pid_, number);
}

void Child::kill_group() const {
  if (pid_ != 0) kill(-pid_, SIGKILL);
}

std::optional<ExitStatus> Child::reap_group() {
  siginfo_t ended{};
  const bool has_ended = pid_ != 0 &&
                         waitid(P_PID, pid_, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                         ended.si_pid == pid_;
  if (!has_ended) return std::nullopt;
  kill_group();
  return reap();
}

std::optional<ExitStatus> Child::reap() {
  int status = 0;
  if (pid_ == 0 || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = 0;
  if (WIFSIGNALED(status)) return ExitStatus{-1, WTERMSIG(status)};
  return ExitStatus{WEXITSTATUS(status), 0};
}

Environment inherited_environment() {
  Environment variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

Pipe make_pipe(const std::string& name, int flags) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | flags) != 0) {
    throw Error(concat("cannot start ", name, ": pipe: ", std::strerror(errno)));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace trireme::launch::inline internal
