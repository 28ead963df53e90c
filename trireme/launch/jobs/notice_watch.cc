#include "trireme/launch/jobs/notice_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/seconds.h"
#include "trireme/base/shown.h"

namespace trireme::launch::inline internal {
namespace {

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxReadsPerPoll = 64;               // a command may write faster than it is read
constexpr int kNotExecutable = 126, kNotFound = 127;  // of shells

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become_command(pid_t parent, int output, const char* command) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotFound);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGPIPE, SIGCHLD}) {
    std::signal(signal, SIG_DFL);
  }
  const int input = open("/dev/null", O_RDONLY);
  if (input >= 0) dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  _exit(kNotFound);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

NoticeWatch::NoticeWatch(NoticeOptions options)
    : options_(std::move(options)), has_command_(!options_.command.empty()) {
  TRIREME_CHECK(options_.interval.count() > 0, "--notice-interval is ",
                in_seconds(options_.interval), " seconds; expected more than 0");
  TRIREME_CHECK(options_.timeout.count() > 0, "the notice command's time-out is ",
                in_seconds(options_.timeout), " seconds; expected more than 0");
}

NoticeWatch::~NoticeWatch() {
  if (command_ == 0) return;
  kill(-command_, SIGKILL);
  // A process that waits for a device dies later; it is then reaped when this one ends.
  for (int i = 0; i < 1000 && waitpid(command_, nullptr, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool NoticeWatch::is_notice(int signal) { return signal == SIGTERM || signal == SIGUSR1; }

void NoticeWatch::take_signal(int signal) {
  if (is_notice(signal)) {
    notices_.push_back({concat("signal ", signal, " (", strsignal(signal), ")"), ""});
  }
}

std::optional<Notice> NoticeWatch::poll(Clock::time_point now) {
  if (command_ != 0) look_at_command(now);
  if (has_command_ && command_ == 0 && (!started_ || now - *started_ >= options_.interval)) {
    start(now);
  }
  if (notices_.empty()) return std::nullopt;
  Notice notice = std::move(notices_.front());
  notices_.pop_front();
  return notice;
}

void NoticeWatch::look_at_command(Clock::time_point now) {
  read_output();
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(command_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0) {
    command_ = 0;  // somebody else has reaped it
  } else if (ended.si_pid == command_) {
    read_output();
    // Before it is reaped, while the number of its group is its own: nothing that it has left
    // running holds on.
    kill(-command_, SIGKILL);
    int status = 0;
    waitpid(command_, &status, 0);
    command_ = 0;
    if (!is_killed_) take_status(status);
  } else if (now - *started_ >= options_.timeout && !is_killed_) {
    is_killed_ = true;
    kill(-command_, SIGKILL);
    problem_ = concat("the notice command took more than ", in_seconds(options_.timeout),
                      " s and was killed");
  }
}

std::optional<std::string> NoticeWatch::take_problem() {
  if (problem_.empty() || problem_ == taken_problem_) return std::nullopt;
  taken_problem_ = problem_;
  return problem_;
}

void NoticeWatch::start(Clock::time_point now) {
  started_ = now;
  is_killed_ = false;
  text_.clear();
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    problem_ = concat("the notice command cannot start: pipe: ", std::strerror(errno));
    return;
  }
  output_ = Descriptor(ends[0]);
  const Descriptor write_end(ends[1]);
  // The command's own writes wait.
  fcntl(write_end.get(), F_SETFL, 0);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become_command(parent, write_end.get(), options_.command.c_str());
  if (child < 0) {
    problem_ = concat("the notice command cannot start: fork: ", std::strerror(errno));
    return;
  }
  setpgid(child, child);  // also here: it may be killed before it has done so itself
  command_ = child;
}

// Takes what is there, and keeps the beginning. A full pipe would stop the command.
void NoticeWatch::read_output() {
  std::array<char, 4096> block{};
  for (size_t i = 0; i < kMaxReadsPerPoll; ++i) {
    const ssize_t size = read(output_.get(), block.data(), block.size());
    if (size <= 0) return;
    text_.append(block.data(), std::min(static_cast<size_t>(size), kMaxText - text_.size()));
  }
}

void NoticeWatch::take_status(int status) {
  const std::string line = shown(first_line(text_), 200);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    problem_ =
        concat("the notice command was killed by signal ", signal, " (", strsignal(signal), ")");
  } else if (code == kNotFound || code == kNotExecutable) {
    problem_ = concat("the notice command ended with code ", code, line.empty() ? "" : ": ", line,
                      "; expected a command that /bin/sh finds");
  } else {
    problem_ = taken_problem_ = "";
  }
  if (code == 0) {
    has_command_ = false;
    notices_.push_back({"notice command", line});
  }
}

}  // namespace trireme::launch::inline internal
