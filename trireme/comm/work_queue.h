// Runs the operations of a group whose transport blocks: background collectives one after another
// (progress.h), background sends and recvs side by side on threads that are kept for the next.
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
  // `abort` makes running operations throw soon; called from any thread.
  explicit WorkQueue(std::function<void()> abort)
      : abort_(std::make_shared<AbortSwitch>(std::move(abort))), guard_{abort_}, ordered_(abort_) {}
  // Aborts what still runs and joins. Works that outlive it can no longer abort.
  ~WorkQueue();

  // A collective: here, after all background collectives, or in the background after those before
  // it. In the foreground, what it throws is thrown.
  WorkPtr run_in_order(std::function<void()> operation, bool background);
  // A send or recv: here and now, or on a thread of its own. Returns the rank its data came from,
  // or -1.
  WorkPtr run_beside(std::function<int()> operation, bool background);

 private:
  struct Task {
    std::function<int()> operation;
    std::shared_ptr<PendingWork> work;
  };
  void loop();

  std::shared_ptr<AbortSwitch> abort_;
  AbortGuard guard_;  // goes after everything that may abort
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // that no thread has taken yet
  std::vector<std::shared_ptr<PendingWork>> running_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
  Progress ordered_;
};

}  // namespace trireme::comm
