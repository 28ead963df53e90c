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
#include "trireme/launch/process/signal_watch.h"

extern char** environ;

namespace trireme::launch {
namespace {

// Pointers into `strings`, with a null at the end, as exec requires.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// On the stack, because nothing may be allocated between fork and exec.
constexpr size_t kMostInherited = 64;

// Data that the child needs between fork and exec, where nothing may be allocated.
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
  int guard_link;          // -1: none
};

// Puts each of the descriptors at its number. First all of them above those numbers: one may be
// where another goes. Returns whether there was room for them.
bool place_descriptors(const Prepared& child) {
  int moved[kMostInherited];
  const size_t count = child.num_inherited;
  // Just above, and no higher: the limit on open files may be small.
  const int above = kFirstInherited + static_cast<int>(count);
  // F_DUPFD without close-on-exec: these are the descriptors that the child keeps.
  const auto move = [above](int from) { return from < 0 ? -1 : fcntl(from, F_DUPFD, above); };
  for (size_t i = 0; i < count; ++i) moved[i] = move(child.inherited[i]);
  const int input = move(child.input);
  const int output = move(child.output);
  const int errors = move(child.errors);
  const bool has_room = std::none_of(moved, moved + count, [](int fd) { return fd < 0; }) &&
                        (input >= 0) == (child.input >= 0) &&
                        (output >= 0) == (child.output >= 0) &&
                        (errors >= 0) == (child.errors >= 0);
  if (!has_room) return false;
  const auto place = [](int from, int to) {
    if (from < 0) return;
    dup2(from, to);
    close(from);
  };
  place(input, STDIN_FILENO);
  place(output, STDOUT_FILENO);
  place(errors, STDERR_FILENO);
  for (size_t i = 0; i < count; ++i) place(moved[i], kFirstInherited + static_cast<int>(i));
  return true;
}

// Says why the child cannot be, to `told`, and ends it.
[[noreturn]] void give_up(const Prepared& child, int told) {
  const char* const reason = strerrordesc_np(errno);  // allocates nothing
  for (const char* part :
       {"cannot start ", static_cast<const char*>(child.argv[0]), ": ", reason}) {
    if (write(told, part, std::strlen(part)) < 0) break;
  }
  _exit(kNotFound);
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const Prepared& child) {
  // First of all, and then the parent is asked for: one that died in between sends no signal any
  // more.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != child.parent) _exit(kNotFound);
  // A group of its own: Ctrl-C would reach it directly, and what it starts is found by the group.
  setpgid(0, 0);
  if (child.guard_link >= 0) GroupGuard::add_this_group(child.guard_link);
  // The parent blocks signals for its signalfd, and a child inherits that.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A scheduler may send its notice to every process of the job. It is for the launcher.
  signal(SIGUSR1, SIG_IGN);
  // A failure is ignored: a worker without binding still works.
  if (child.cores != nullptr) sched_setaffinity(0, sizeof(*child.cores), child.cores);
  const bool has_first = child.num_inherited > 0;
  // Before exec the pipe for errors is still at its old number.
  if (!place_descriptors(child)) give_up(child, has_first ? child.inherited[0] : STDERR_FILENO);
  execvpe(child.argv[0], child.argv, child.envp);
  give_up(child, has_first ? kFirstInherited : STDERR_FILENO);
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

Child::Child(const ChildOptions& options, const std::string& name) : guard_(options.guard) {
  TRIREME_ASSERT(options.inherited.size() <= kMostInherited, name, " would inherit ",
                 options.inherited.size(), " descriptors");
  std::vector<std::string> arguments = options.command;
  std::vector<std::string> variables;
  // Everything that allocates is done before the fork: another thread may hold the allocator's lock
  // at that moment.
  for (const auto& [key, value] : options.environment) variables.push_back(key + "=" + value);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const cpu_set_t cores = to_cpu_set(options.cores.value_or(CoreSet()));
  // The guard's shell starts before the fork, so that no child is unguarded meanwhile.
  const int guard_link = guard_ != nullptr ? guard_->begin() : -1;
  const Prepared prepared{.parent = getpid(),
                          .argv = argv.data(),
                          .envp = envp.data(),
                          .inherited = options.inherited.data(),
                          .num_inherited = options.inherited.size(),
                          .input = options.input,
                          .output = options.output,
                          .errors = options.errors,
                          .cores = options.cores ? &cores : nullptr,
                          .guard_link = guard_link};
  pid_ = fork();
  if (pid_ == 0) become(prepared);
  if (pid_ < 0) {
    // concat() may change errno.
    const int code = errno;
    pid_ = 0;
    throw Error(concat("cannot start ", name, ": fork: ", std::strerror(code)));
  }
  setpgid(pid_, pid_);  // also here: its group may be killed before it has made it itself
  if (guard_ != nullptr) guard_->add(pid_);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), guard_(std::exchange(other.guard_, nullptr)) {}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(guard_, other.guard_);
  return *this;
}

Child::~Child() {
  kill_group();
  // One that waits for a device dies later. It is collected when this process ends.
  // A second at most: one that waits for a device cannot be killed.
  for (int i = 0; pid_ != 0 && i < 1000 && !reap(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Without collecting it: its number stays its own.
bool Child::has_ended() const {
  siginfo_t ended{};
  return pid_ != 0 && waitid(P_PID, pid_, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == pid_;
}

void Child::signal(int number) const {
  if (pid_ != 0) kill(pid_, number);
}

void Child::kill_group() const {
  if (pid_ != 0) kill(-pid_, SIGKILL);
}

std::optional<ExitStatus> Child::reap_group() {
  if (!has_ended()) return std::nullopt;
  // Before the leader is collected. After that its number may be another group's.
  kill_group();
  return reap();
}

std::optional<ExitStatus> Child::reap() {
  if (!has_ended()) return std::nullopt;
  // As above: the guard must not kill a group that has taken the number over.
  if (guard_ != nullptr) guard_->remove(pid_);
  int status = 0;
  if (waitpid(std::exchange(pid_, 0), &status, WNOHANG) <= 0) return std::nullopt;
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
  // O_CLOEXEC at once: another thread may fork between two calls.
  if (pipe2(ends, O_CLOEXEC | flags) != 0) {
    throw Error(concat("cannot start ", name, ": pipe: ", std::strerror(errno)));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace trireme::launch
