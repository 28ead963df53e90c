#include "trireme/launch/local_ranks.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/base/words.h"
#include "trireme/launch/process/child.h"
#include "trireme/launch/process/rank_environment.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {

// One loop watches all ranks of this host, woken by SIGCHLD through a signalfd. When a rank fails,
// the others lose it and end with a CommError by themselves, which tells more than a kill would.
// Only after a grace are they killed. The first failure that is a cause counts: a rank that lost
// its peers may be collected before the rank that they lost.

namespace {

using Clock = std::chrono::steady_clock;

// Shared by the ranks of one launch.
struct Launch {
  explicit Launch(std::string name)
      : job(std::move(name)), meeting(job), ready(make_pipe("the launcher", O_NONBLOCK)) {}

  // A byte in a pipe, so that any rank can say it and none has to be asked.
  // Whether a rank has said that expendable ones may fail.
  bool is_ready() const {
    pollfd said{ready.read_end.get(), POLLIN, 0};
    return poll(&said, 1, /*timeout=*/0) > 0 && (said.revents & POLLIN) != 0;
  }

  std::string job;
  MeetingFile meeting;
  Pipe ready;  // behind TRIREME_READY_FD
  GroupGuard guard{};
};

Environment environment_of(int rank, int num_ranks, const Launch& launch) {
  Environment variables = rank_environment(
      inherited_environment(),
      {.rank = rank, .size = num_ranks, .local_rank = rank, .local_size = num_ranks}, launch.job);
  variables["TRIREME_LAUNCH"] = launch.job;
  variables["TRIREME_ERROR_FD"] = std::to_string(kFirstInherited);
  variables["TRIREME_READY_FD"] = std::to_string(kFirstInherited + 1);
  if (!variables.contains("MASTER_ADDR")) {
    variables.emplace("TRIREME_STORE", launch.meeting.store());
  }
  // Nothing listens there. Other programs read these variables.
  // emplace: values of the user stay.
  variables.emplace("MASTER_ADDR", "127.0.0.1");
  variables.emplace("MASTER_PORT", "29500");
  return variables;
}

struct Rank {
  int rank = 0;
  Child process;
  Descriptor errors;  // read end of the pipe behind TRIREME_ERROR_FD
};

Rank start_rank(const LocalRanksOptions& options, int rank, Launch& launch) {
  const std::string name = concat("rank ", rank);
  // Non-blocking, so that reading a rank's last words cannot wait for a process that it left
  // behind.
  Pipe errors = make_pipe(name, O_NONBLOCK);
  Child process({.command = options.command,
                 .environment = environment_of(rank, options.num_ranks, launch),
                 .inherited = {errors.write_end.get(), launch.ready.write_end.get()},
                 .guard = &launch.guard},
                name);
  return {rank, std::move(process), std::move(errors.read_end)};
}

// The message that an ended rank left in its pipe, without the newline.
std::string read_message(const Rank& rank) {
  std::string message(4096, '\0');
  const ssize_t size = read(rank.errors.get(), message.data(), message.size());
  message.resize(std::max<ssize_t>(0, size));
  while (message.ends_with('\n')) message.pop_back();
  return message;
}

// The running ranks. None outlives this object.
class Ranks {
 public:
  void add(Rank rank) { running_.push_back(std::move(rank)); }
  bool empty() const { return running_.empty(); }
  void signal_all(int signal) const {
    for (const Rank& rank : running_) rank.process.signal(signal);
  }
  // Passes on a request to stop. A rank without a handler dies of it, which is not a failure.
  void request_stop(int signal) {
    requested_signal_ = signal;
    signal_all(signal);
  }
  bool stopped_before_start() const { return stopped_before_start_; }
  // Collects ranks that have ended. Remembers the first failure of a rank that is not expendable.
  void reap(RankExit& failure, const LocalRanksOptions& options, const Launch& launch) {
    // Before that moment nobody has copies of what an expendable rank holds.
    const int num_expendable = launch.is_ready() ? options.num_expendable : 0;
    std::erase_if(running_, [&](Rank& rank) {
      const std::optional<ExitStatus> status = rank.process.reap();
      if (!status) return false;
      const auto [code, signal] = *status;
      // A rank that lost a peer is replaced by one that failed by itself, but not by one that this
      // program kills.
      const bool is_cause =
          failure.rank < 0 || (failure.code == kPeerLost && code != kPeerLost && !killing_);
      if (signal != 0 && signal == requested_signal_) {
        stopped_before_start_ = true;
      } else if (code != 0 && rank.rank >= options.num_ranks - num_expendable) {
        // Servers that end together with the others are not news.
        const bool is_stopping = killing_ || failure.rank >= 0 || requested_signal_ != 0;
        if (options.on_expended && !is_stopping) {
          options.on_expended({rank.rank, code, signal, read_message(rank)});
        }
      } else if (code != 0 && is_cause) {
        failure = {rank.rank, code, signal, read_message(rank)};
      }
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

RankExit run_local_ranks(const LocalRanksOptions& options) {
  const SignalWatch signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP});
  // The process id is for people who look into /dev/shm.
  Launch launch(concat(getpid(), "-", unique_name()));
  Ranks ranks;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    ranks.add(start_rank(options, rank, launch));
  }

  RankExit first_failure;
  std::optional<Clock::time_point> deadline;
  while (!ranks.empty()) {
    // The timeout is for the deadline, which no signal announces.
    pollfd ready{signals.descriptor(), POLLIN, 0};
    poll(&ready, 1, /*timeout=*/100);
    while (const std::optional<int> signal = signals.next()) {
      // SIGHUP as SIGTERM: the program asks to stop in one way only.
      if (*signal != SIGCHLD) ranks.request_stop(*signal == SIGHUP ? SIGTERM : *signal);
    }
    ranks.reap(first_failure, options, launch);
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
    return concat("rank ", exit.rank, " was ", killed_by(exit.signal));
  }
  if (!exit.message.empty()) return exit.message;
  return concat("rank ", exit.rank, " exited with code ", exit.code);
}

}  // namespace trireme::launch
