#include "trireme/checkpoint/agreement.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <new>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint {

// A rank may work for minutes on a slow disk while its peers wait in a collective, whose timeout
// would take it for lost. So the caller's thread works, and a second thread of each rank exchanges
// a number again and again: 0 while its work goes on. Every exchange is a full collective, so all
// ranks agree on who is at work and all leave the loop in the same round. Only then the results
// travel, over a group that no thread uses any more. `produce` must not use `world`: its calls
// would mix with the heartbeat's. Errors are turned into text before they leave the working thread,
// because a rank that throws alone would leave the others in a collective that it never joins.

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The first letter of a rank's report: a result, or an error of some type.
enum Kind : char {
  kSucceeded = '+',
  kConfigError = 'c',
  kCheckpointError = 'k',
  kError = 'e',
  kInternalError = 'i',
};

// Most work takes a moment, and its end should not wait for a long pause.
constexpr milliseconds kFirstPause{50};
// Well below any sensible timeout, and rare enough to keep a recorder's ring readable.
constexpr milliseconds kLongestPause{250};
constexpr milliseconds kQuiet{3000};  // before the first report of a wait
constexpr milliseconds kBetweenWords{1000};

// The message becomes one line on every rank.
// The first line of libtorch's messages; a stack trace follows.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

[[noreturn]] void throw_as(Kind kind, const std::string& message) {
  switch (kind) {
    case kConfigError: throw ConfigError(message);
    case kCheckpointError: throw CheckpointError(message);
    case kError: throw Error(message);
    default: throw InternalError(message);
  }
}

std::string report(Kind kind, const std::string& message) {
  return static_cast<char>(kind) + first_line(message);
}

// The result or error of `produce`, for the peers to read.
std::string report_of(const std::function<std::string(const Peers&)>& produce, const Peers& peers) {
  try {
    return static_cast<char>(kSucceeded) + produce(peers);
  } catch (const CommError&) {
    // Not reported: the caller aborts the group, which is how the peers learn of it.
    throw;  // the group is dead: nothing can be sent to the peers
  } catch (const ConfigError& error) {
    return report(kConfigError, error.what());
  } catch (const CheckpointError& error) {
    return report(kCheckpointError, error.what());
  } catch (const InternalError& error) {
    return report(kInternalError, error.what());
  } catch (const Error& error) {
    return report(kError, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return report(kError, concat(error.path1().string(), ": ", error.code().message()));
  } catch (const std::bad_alloc&) {
    // The user can help that: fewer bytes or more memory.
    return report(kConfigError, "out of memory");
  } catch (const std::exception& error) {
    return report(kInternalError, error.what());
  }
}

// Tells the peers, from its own thread, that this rank is alive, until all have finished.
class Heartbeat : public Peers {
 public:
  Heartbeat(comm::Communicator& world, const OnWait& on_wait)
      : world_(world), on_wait_(on_wait), thread_([this] { run(); }) {}
  ~Heartbeat() override {
    if (!thread_.joinable()) return;
    // Reached when an exception passes by. Without the abort the peers' heartbeats would go on, and
    // this thread's join would wait for them.
    world_.abort("a rank gave up its work");
    finish_and_join();
  }

  void check() const override {
    // The flag is set after error_ is written, so whoever sees it may read error_.
    if (has_failed_.load()) std::rethrow_exception(error_);
  }
  // Reports that this rank's work is done. Returns when every rank's is.
  void finish() {
    finish_and_join();
    check();
  }

 private:
  void finish_and_join() {
    {
      const std::lock_guard lock(mutex_);
      // Under the lock, or the thread could test the flag, miss the notice and sleep for its whole
      // pause.
      is_finished_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  bool wait_until_finished(milliseconds pause) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, pause, [this] { return is_finished_; });
  }

  void run() {
    try {
      for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
        // Finished ranks go on reporting: the exchange needs all of them.
        const int64_t finished = wait_until_finished(pause) ? 1 : 0;
        const std::vector<int64_t> all = comm::all_gather_numbers(world_, finished);
        std::vector<int> at_work;
        for (size_t rank = 0; rank < all.size(); ++rank) {
          if (all[rank] == 0) at_work.push_back(static_cast<int>(rank));
        }
        if (at_work.empty()) return;
        tell(at_work);
      }
    } catch (...) {
      // An exception must not leave the thread. check() and finish() throw it where the caller can
      // take it.
      error_ = std::current_exception();
      has_failed_ = true;
    }
  }
  void tell(std::span<const int> at_work) {
    const auto now = Clock::now();
    if (!on_wait_ || now - start_ < kQuiet || now - last_word_ < kBetweenWords) return;
    last_word_ = now;
    on_wait_(at_work, std::chrono::duration_cast<milliseconds>(now - start_));
  }

  comm::Communicator& world_;
  const OnWait& on_wait_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_word_{};
  std::atomic<bool> has_failed_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_finished_ = false;
  std::thread thread_;  // last: it uses the others
};

class NoPeers : public Peers {
 public:
  void check() const override {}
};

std::vector<std::string> exchange_reports(comm::Communicator& world,
                                          const std::function<std::string(const Peers&)>& produce,
                                          const OnWait& on_wait) {
  if (world.size() == 1) return {report_of(produce, NoPeers())};
  std::string mine;
  {
    Heartbeat heartbeat(world, on_wait);
    try {
      mine = report_of(produce, heartbeat);
    } catch (const CommError& error) {
      world.abort(error.what());  // the peers must not wait for what will not come
      throw;
    }
    heartbeat.finish();
  }
  return comm::all_gather_strings(world, mine);
}

// Throws what the first rank that failed threw.
void throw_first(std::span<const std::string> reports, bool names_rank) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const Kind kind = static_cast<Kind>(reports[rank].front());
    const std::string message = reports[rank].substr(1);
    if (kind != kSucceeded)
      throw_as(kind, names_rank ? concat("rank ", rank, ": ", message) : message);
  }
}

}  // namespace

std::vector<std::string> gather_or_throw(comm::Communicator& world,
                                         const std::function<std::string(const Peers&)>& produce,
                                         const OnWait& on_wait) {
  std::vector<std::string> reports = exchange_reports(world, produce, on_wait);
  // When all say the same, as of one shared folder, a rank's number would blame one of many.
  const bool all_alike = std::ranges::count(reports, reports[0]) == std::ssize(reports);
  throw_first(reports, /*names_rank=*/!all_alike);
  for (std::string& report : reports) report.erase(0, 1);
  return reports;
}

void run_or_throw(comm::Communicator& world, const std::function<void(const Peers&)>& work,
                  const OnWait& on_wait) {
  gather_or_throw(
      world,
      [&](const Peers& peers) {
        work(peers);
        return std::string();
      },
      on_wait);
}

std::string from_root(comm::Communicator& world,
                      const std::function<std::string(const Peers&)>& produce,
                      const OnWait& on_wait) {
  const auto on_rank_0 = [&](const Peers& peers) {
    return world.rank() == 0 ? produce(peers) : std::string();
  };
  const std::vector<std::string> reports = exchange_reports(world, on_rank_0, on_wait);
  throw_first(reports, /*names_rank=*/false);
  return reports[0].substr(1);
}

}  // namespace trireme::checkpoint
