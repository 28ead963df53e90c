// Runs a group's background collectives in the order they were issued, on its own thread. The first
// of them starts the thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "trireme/comm/communicator.h"
#include "trireme/comm/pending_work.h"

namespace trireme::comm {

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

}  // namespace trireme::comm
