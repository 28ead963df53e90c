// Work of a group that other threads finish: the works that are handed out, the thread that runs
// background collectives in order, and the threads that run blocking sends and recvs beside it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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

// Runs a group's background collectives in the order they were issued, on its own thread. The first
// of them starts the thread.
// Thread safety: run() and run_in_background() from one thread at a time.
class Progress {
 public:
  // `abort` must make a running operation throw soon.
  explicit Progress(std::shared_ptr<AbortSwitch> abort) : abort_(std::move(abort)) {}
  // Aborts running operations and joins the thread.
  ~Progress();

  // Returns when all background work is done. The next operation may then run in the calling
  // thread.
  void drain() {
    if (num_pending_.load(std::memory_order_acquire) != 0) wait_until_empty();
  }
  // Runs `operation` in the calling thread, after all background work, and returns done work. Its
  // exceptions are passed on.
  template <typename Operation>
  WorkPtr run(const Operation& operation) {
    drain();
    operation();
    return done_work();
  }
  WorkPtr run_in_background(std::function<void()> operation);

 private:
  struct Task {
    std::function<void()> operation;
    std::shared_ptr<PendingWork> work;
  };
  void wait_until_empty();
  void loop();

  std::shared_ptr<AbortSwitch> abort_;
  std::atomic<int> num_pending_ = 0;  // queued or running
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool stop_ = false;
  std::thread thread_;
};

// Runs the operations of a group whose transport blocks. Background collectives run one after
// another (Progress). Background sends and recvs run in parallel, on threads that are kept for
// reuse.
// Thread safety: one thread at a time uses collectives(); any may call run_beside().
class WorkQueue {
 public:
  // `abort` must make running operations throw soon. Any thread may call it.
  explicit WorkQueue(std::function<void()> abort)
      : abort_(std::make_shared<AbortSwitch>(std::move(abort))), guard_{abort_}, ordered_(abort_) {}
  // Aborts running operations and joins the threads. Works that outlive it can no longer abort.
  ~WorkQueue();

  // Runs collectives, one after another.
  Progress& collectives() { return ordered_; }
  // Runs a send or recv, in this thread or on another. The operation returns the rank its data came
  // from, or -1.
  WorkPtr run_beside(std::function<int()> operation, bool background);

 private:
  struct Task {
    std::function<int()> operation;
    std::shared_ptr<PendingWork> work;
  };
  void loop();

  std::shared_ptr<AbortSwitch> abort_;
  AbortGuard guard_;  // destroyed after everything that may abort
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // not yet taken by a thread
  std::vector<std::shared_ptr<PendingWork>> running_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
  Progress ordered_;
};

}  // namespace trireme::comm
