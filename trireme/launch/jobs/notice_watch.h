// Learns that this host is about to be taken away: from a signal, or from a command that asks the
// cloud. Only watches and reports; what follows is the caller's to do.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "trireme/base/file/file.h"
#include "trireme/launch/process/child.h"

namespace trireme::launch {

struct NoticeOptions {
  // For /bin/sh. Exit code 0 is a notice, any other is none. "": no command.
  std::string command = {};
  std::chrono::milliseconds interval{5000};  // from one start of the command to the next
  std::chrono::milliseconds timeout{10000};  // then it is killed, which does not count as a notice
};

struct Notice {
  std::string source;  // "signal 10 (User defined signal 1)" or "notice command"
  std::string text;    // the command's first line of output; may be empty
};

// One thread uses it. The command runs in a process group of its own, dies with the thread that
// polls, and inherits the environment. It may be reaped only here: the caller waits for no child
// but its own.
class NoticeWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws: ConfigError when interval or timeout are not above 0
  explicit NoticeWatch(NoticeOptions options);
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

  // SIGTERM, which ends most jobs, and SIGUSR1, which Slurm sends before the limit (--signal).
  static bool is_notice(int signal);

  // Tells that the caller, who owns the signals, has got one. Others than is_notice() are ignored.
  void take_signal(int signal);

  // Starts the command when it is due and looks at the one that runs. Never waits. Returns each
  // notice once; a command that has given notice is not run again.
  std::optional<Notice> poll(Clock::time_point now = Clock::now());

  // Why the command cannot be relied on: it was not found, was killed or took too long. Returns
  // each reason once, until the command has worked again.
  std::optional<std::string> take_problem();

 private:
  void start(Clock::time_point now);
  void look_at_command(Clock::time_point now);
  void read_output();
  void take_status(const ExitStatus& status);

  NoticeOptions options_;
  std::deque<Notice> notices_;
  bool has_command_;
  GroupGuard guard_{};              // of the command
  std::optional<Child> command_{};  // while it runs
  bool is_killed_ = false;
  Descriptor output_;
  std::string text_;  // of its output, the beginning
  std::optional<Clock::time_point> started_;
  std::string problem_, taken_problem_;
};

}  // namespace trireme::launch
