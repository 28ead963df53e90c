#include "trireme/cli/train/elastic_rank.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/comm/cancellation.h"
#include "trireme/launch/link/link_ends.h"
#include "trireme/launch/process/rank_environment.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/state/places.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// For messages that the agent needs, unlike "step".
constexpr std::chrono::seconds kSendPatience{10};
constexpr std::chrono::milliseconds kLook{100};  // at the signals, while waiting for the agent
// How long a rank may take to give up its groups, beside four of its longest steps: it may be
// computing one.
constexpr std::chrono::seconds kLeavePatience{10};
// A rank 0 of an earlier epoch has ended this long after its host's lease, as has every worker.
// Where a file server keeps the lock, it does so for the host's lease there (Linux's NFS server:
// 90 s), even if the host is suspended or lost.
constexpr std::chrono::seconds kLeaseMargin{1};
constexpr std::chrono::seconds kServerPatience{90};

// The agent's description of an epoch.
struct Part {
  int64_t epoch = 1;
  std::string reason;
  comm::WorldInfo info;
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// How long a rank 0 of an earlier epoch may hold the run's folder.
std::chrono::seconds stale_patience() {
  const std::string lease = variable(launch::kLeaseVariable);
  int64_t seconds = 0;
  std::from_chars(lease.data(), lease.data() + lease.size(), seconds);
  return std::chrono::seconds(seconds) + kLeaseMargin + kServerPatience;
}

Part part_of(const launch::Join& join) {
  comm::WorldInfo info{.rank = static_cast<int>(join.rank),
                       .size = static_cast<int>(join.size),
                       .local_rank = static_cast<int>(join.local_rank),
                       .local_size = static_cast<int>(join.local_size),
                       .job = join.job,
                       .store = join.store};
  info.interface = variable("GLOO_SOCKET_IFNAME");
  info.listen = variable("TRIREME_LISTEN");
  return {join.epoch, join.reason, info};
}

// The agent's name for the job. The epoch's is "<job>-<epoch>".
std::string job_of(const Part& part) {
  const std::string end = concat("-", part.epoch);
  std::string job = part.info.job;
  if (job.ends_with(end)) job.resize(job.size() - end.size());
  return job;
}

// The part with the ranks that the layout has room for.
comm::WorldInfo limited(comm::WorldInfo info, int size) {
  const int first = info.rank - info.local_rank;
  info.local_size = std::min(info.local_size, size - first);
  info.size = size;
  // An agent gives each epoch a name of its own, so this holds whether the part comes from "join"
  // or from the environment, and all ranks decide alike.
  info.is_one_host = info.local_size == info.size;
  return info;
}

// Whether ranks that share a host need a store to meet.
bool needs_file(const comm::WorldInfo& info, const std::string& transport) {
  return info.is_one_host && transport != "auto" && transport != "shm";
}

class ElasticRank {
 public:
  ElasticRank(const ElasticRun& run, int agent_fd)
      : run_(run), link_(agent_fd), folder_(fs::absolute(run_.load_config().output.folder)) {
    link_.send(launch::Hello{.folder = folder_.string()}, kSendPatience);
  }

  int run() {
    std::optional<Part> part;
    if (run_.first) part = Part{run_.first_epoch, "", *run_.first};
    if (!part) part = wait_join(run_.first_epoch - 1);
    while (part && !take(*part)) part = wait_join(part->epoch);
    // The ranks that ended the run have done so on their hosts.
    if (is_host_spare_) train::forget_overtaken_memory(folder_);
    return kDone;
  }

 private:
  // Takes part in an epoch. Returns whether it was the last one: the run has ended or was stopped.
  bool take(Part& part) {
    train::RunConfig config = run_.load_config();
    config.parallel.data = 0;
    config.is_elastic = true;
    config.job = job_of(part);
    config.job_epoch = part.epoch;
    train::RunConfig counted = config;
    if (counted.parallel.learners == 0) {  // "hosts", which ranks count when they have met
      counted.parallel.learners = std::max(1, part.info.size / std::max(1, part.info.local_size));
    }
    const int size = train::largest_world(counted, part.info.size);
    is_host_spare_ = part.info.rank - part.info.local_rank >= size;
    if (part.info.rank >= size) {
      link_.send(launch::Spare{part.epoch}, kSendPatience);
      return false;
    }
    std::string error;
    if (train(std::move(config), part, limited(part.info, size), error)) return true;
    say_left(part.epoch, error);
    return false;
  }

  void say_left(int64_t epoch, const std::string& error) {
    link_.send(launch::Left{epoch, step_, error}, kSendPatience);
    left_epoch_ = epoch;
  }

  // Like take(). When the epoch has been left, `error` has the error that the rank saw.
  bool train(train::RunConfig config, const Part& part, comm::WorldInfo info, std::string& error) {
    LeaveLimit limit;
    const auto cancellation = std::make_shared<comm::Cancellation>();
    link_.on_leave(part.epoch, [&limit, cancellation, this](const std::string& reason) {
      limit.begin(kLeavePatience + 4 * longest_step_.load());
      cancellation->cancel(reason);
    });
    bool is_last = false;
    try {
      is_last = train_epoch(std::move(config), part, std::move(info), cancellation);
    } catch (const CommError& lost) {
      error = lost.what();
    } catch (const std::exception& failure) {
      // Errors while the groups are torn down say nothing about the run.
      if (cancellation->reason().empty()) {
        link_.on_leave(part.epoch, nullptr);
        throw;
      }
      error = failure.what();
    }
    link_.on_leave(part.epoch, nullptr);
    return is_last;
  }

  bool train_epoch(train::RunConfig config, const Part& part, comm::WorldInfo info,
                   const std::shared_ptr<comm::Cancellation>& cancellation) {
    std::optional<launch::MeetingFile> meeting;
    if (needs_file(info, config.parallel.transport)) {
      info.store = meeting.emplace(info.job).store();
    }
    RankGroup group(config, info, cancellation);
    Clock::time_point last = Clock::now();
    const Epoch epoch{.number = part.epoch,
                      .reason = part.reason,
                      .folder_patience = stale_patience(),
                      .on_finished =
                          [&](int64_t step) {
                            longest_step_ = std::max(longest_step_.load(), Clock::now() - last);
                            last = Clock::now();
                            step_ = step;
                            link_.send(launch::StepDone{part.epoch, step});
                          },
                      .has_to_finish = [&] { return link_.has_to_finish(part.epoch); },
                      .cancellation = cancellation};
    const bool is_first = part.epoch == run_.first_epoch;
    const train::Outcome outcome =
        train_rank(config, group, is_first ? run_.profile : train::ProfileOptions(), epoch);
    // Else another rank or the agent asked for it, and the next epoch goes on.
    return outcome != train::Outcome::kStopped || stop_requested;
  }

  // Nothing when the process is to stop.
  std::optional<Part> wait_join(int64_t after) {
    while (!stop_requested) {
      if (const auto join = link_.wait_join(after, kLook)) return part_of(*join);
      // The epoch ended before this rank began it, or the rank was a spare in it.
      const std::optional<launch::Leave> leave = link_.newest_leave();
      if (leave && leave->epoch > left_epoch_) say_left(leave->epoch, "");
    }
    return std::nullopt;
  }

  const ElasticRun& run_;
  launch::AgentLink link_;
  fs::path folder_;             // of the run
  bool is_host_spare_ = false;  // the layout has no place for any rank of this host
  int64_t step_ = 0;            // the last finished one
  int64_t left_epoch_ = 0;      // the last one it has said "left" for
  std::atomic<Clock::duration> longest_step_ = Clock::duration::zero();
};

}  // namespace

LeaveLimit::LeaveLimit() : thread_([this] { watch(); }) {}

LeaveLimit::~LeaveLimit() {
  {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LeaveLimit::begin(std::chrono::nanoseconds patience) {
  const std::lock_guard lock(mutex_);
  if (!deadline_) deadline_ = std::chrono::steady_clock::now() + patience;
  changed_.notify_all();
}

void LeaveLimit::watch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_left_ || deadline_; });
  if (has_left_ || changed_.wait_until(lock, *deadline_, [this] { return has_left_; })) return;
  report(kPeerLost, "did not leave its groups in time after the loss of a rank");
  ::_exit(kPeerLost);
}

int run_elastic_rank(const ElasticRun& run, int agent_fd) {
  stop_on_signals();
  return ElasticRank(run, agent_fd).run();
}

}  // namespace trireme::cli
