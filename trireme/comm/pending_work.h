// Work that another thread finishes, and work that is done already.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// How work gives its group up; works may outlive the group. Thread safe.
class AbortSwitch {
 public:
  explicit AbortSwitch(std::function<void()> abort) : abort_(std::move(abort)) {}
  void abort() {
    const std::lock_guard lock(mutex_);
    if (abort_) abort_();
  }
  // The group goes: from now on abort() does nothing. Waits for one that runs.
  void disconnect() {
    const std::lock_guard lock(mutex_);
    abort_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::function<void()> abort_;
};

// A group's member that goes after everything that may abort it: work that outlives the group can
// no longer reach it.
struct AbortGuard {
  std::shared_ptr<AbortSwitch> abort;
  ~AbortGuard() { abort->disconnect(); }
};

// What a thread that waits for its peers is seen to do in a profile of libtorch's.
inline constexpr char kWaitEvent[] = "trireme::wait";

class PendingWork : public Work {
 public:
  explicit PendingWork(std::shared_ptr<AbortSwitch> abort) : abort_(std::move(abort)) {}

  // Once; null for success.
  void finish(std::exception_ptr error, int source = -1);

  void wait() override;
  bool wait_for(std::chrono::milliseconds limit) override;
  bool poll() override;
  void abort() override { abort_->abort(); }
  int source() const override;

 private:
  std::shared_ptr<AbortSwitch> abort_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  int source_ = -1;
  std::exception_ptr error_;
};

// What a foreground call that succeeded returns.
WorkPtr done_work();

}  // namespace trireme::comm
