#include "trireme/launch/jobs/notice_watch.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {
namespace {

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxReadsPerPoll = 64;  // a command may write faster than it is read
constexpr int kNotExecutable = 126;      // of shells, as kNotFound

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

NoticeWatch::NoticeWatch(NoticeOptions options)
    : options_(std::move(options)), has_command_(!options_.command.empty()) {
  TRIREME_CHECK(options_.interval.count() > 0, "--notice-interval is ",
                in_seconds(options_.interval), " seconds; expected more than 0");
  TRIREME_CHECK(options_.timeout.count() > 0, "the notice command's time-out is ",
                in_seconds(options_.timeout), " seconds; expected more than 0");
}

bool NoticeWatch::is_notice(int signal) { return signal == SIGTERM || signal == SIGUSR1; }

void NoticeWatch::take_signal(int signal) {
  if (is_notice(signal)) {
    notices_.push_back({concat("signal ", signal, " (", strsignal(signal), ")"), ""});
  }
}

std::optional<Notice> NoticeWatch::poll(Clock::time_point now) {
  // Looks before it starts the next: one command runs at a time, however long it takes.
  if (command_) look_at_command(now);
  if (has_command_ && !command_ && (!started_ || now - *started_ >= options_.interval)) {
    start(now);
  }
  if (notices_.empty()) return std::nullopt;
  Notice notice = std::move(notices_.front());
  notices_.pop_front();
  return notice;
}

void NoticeWatch::look_at_command(Clock::time_point now) {
  // Before and after the reaping: the first keeps a full pipe from stopping the command, the second
  // takes its last words.
  read_output();
  if (const std::optional<ExitStatus> status = command_->reap_group()) {
    read_output();
    command_.reset();
    // A killed command's status is our own doing, so only the problem is reported.
    if (!is_killed_) take_status(*status);
  } else if (now - *started_ >= options_.timeout && !is_killed_) {
    is_killed_ = true;
    command_->kill_group();
    // Told once, and again only after the command has worked: it is run every few seconds.
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
  try {
    Pipe output = make_pipe("the notice command");
    // Only this end: the command's own writes wait.
    fcntl(output.read_end.get(), F_SETFL, O_NONBLOCK);
    const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    command_.emplace(ChildOptions{.command = {"/bin/sh", "-c", options_.command},
                                  .environment = inherited_environment(),
                                  .input = nothing.get(),
                                  .output = output.write_end.get(),
                                  .errors = output.write_end.get(),
                                  .guard = &guard_},
                     "the notice command");
    output_ = std::move(output.read_end);
  } catch (const Error& error) {
    problem_ = error.what();
  }
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

void NoticeWatch::take_status(const ExitStatus& status) {
  const std::string line = shown(first_line(text_), 200);
  const auto [code, signal] = status;
  if (signal != 0) {
    problem_ = concat("the notice command was ", killed_by(signal));
  } else if (code == kNotFound || code == kNotExecutable) {
    // A command that is not there would look like "no notice" for ever.
    problem_ = concat("the notice command ended with code ", code, line.empty() ? "" : ": ", line,
                      "; expected a command that /bin/sh finds");
  } else {
    problem_ = taken_problem_ = "";
  }
  if (code == 0) {
    // Asked again, it would say the same until the host is gone.
    has_command_ = false;
    notices_.push_back({"notice command", line});
  }
}

}  // namespace trireme::launch
