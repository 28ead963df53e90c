// Runs the operations of a group whose transport blocks. Background collectives run one after
// another (progress.h). Background sends and recvs run in parallel, on threads that are kept for
// reuse.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/pending_work.h"
#include "trireme/comm/progress.h"

namespace trireme::comm {

// Thread safety: run_in_order() from one thread at a time, run_beside() from any.
class WorkQueue {
 public:
  // `abort` must make running operations throw soon. Any thread may call it.
  explicit WorkQueue(std::function<void()> abort)
      : abort_(std::make_shared<AbortSwitch>(std::move(abort))), guard_{abort_}, ordered_(abort_) {}
  // Aborts running operations and joins the threads. Works that outlive it can no longer abort.
  ~WorkQueue();

  // Runs a collective after all background collectives issued before it, in this thread or in the
  // background. In the foreground its exceptions are passed on.
  WorkPtr run_in_order(std::function<void()> operation, bool background);
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
