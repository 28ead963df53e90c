// Work that another thread finishes, and work that is already done.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Lets work abort its group. Work may outlive the group. Thread safe.
class AbortSwitch {
 public:
  explicit AbortSwitch(std::function<void()> abort) : abort_(std::move(abort)) {}
  void abort() {
    const std::lock_guard lock(mutex_);
    if (abort_) abort_();
  }
  // Call when the group ends: afterwards abort() does nothing. Waits for one that runs.
  void disconnect() {
    const std::lock_guard lock(mutex_);
    abort_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::function<void()> abort_;
};

// Declare it in a group before everything that may abort the group, so that it is destroyed last.
// Work that outlives the group can then no longer abort it.
struct AbortGuard {
  std::shared_ptr<AbortSwitch> abort;
  ~AbortGuard() { abort->disconnect(); }
};

// The event that libtorch's profiler shows while a thread waits for its peers.
inline constexpr char kWaitEvent[] = "trireme::wait";

class PendingWork : public Work {
 public:
  explicit PendingWork(std::shared_ptr<AbortSwitch> abort) : abort_(std::move(abort)) {}

  // Call once. A null error means success.
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

// Returned by foreground calls that succeed.
WorkPtr done_work();

}  // namespace trireme::comm
