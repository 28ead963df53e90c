// Runs the operations of a group whose transport blocks: background collectives one after another
// on one thread, background sends and recvs side by side on threads that are kept for the next.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

class WorkQueue {
 public:
  // What runs; returns the rank its data came from, or -1.
  using Operation = std::function<int()>;

  // `abort` makes running operations throw soon; called from any thread.
  explicit WorkQueue(std::function<void()> abort)
      : abort_(std::make_shared<std::function<void()>>(std::move(abort))) {}
  // Aborts what still runs and joins.
  ~WorkQueue();

  // A collective: here, after all background collectives, or in the background after those before
  // it. In the foreground, what it throws is thrown.
  WorkPtr run_in_order(Operation operation, bool background);
  // A send or recv: here and now, or on a thread of its own.
  WorkPtr run_beside(Operation operation, bool background);

 private:
  class Task;
  struct Lane {
    std::deque<std::shared_ptr<Task>> tasks;  // those that run are no longer in it
    int num_running = 0;
    int num_threads = 0;
  };
  WorkPtr run_here(const Operation& operation);
  WorkPtr enqueue(Lane& lane, Operation operation, int most_threads);
  void loop(Lane& lane);

  std::shared_ptr<std::function<void()>> abort_;  // work may outlive its group
  std::mutex mutex_;
  std::condition_variable changed_;
  Lane ordered_;
  Lane beside_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme::comm
