// Runs a group's background operations in the order they were issued, on a thread of its own that
// starts with the first of them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

class Progress {
 public:
  // `abort` makes a running operation throw soon; called from any thread.
  explicit Progress(std::function<void()> abort)
      : abort_(std::make_shared<std::function<void()>>(std::move(abort))) {}
  // Aborts what still runs and joins.
  ~Progress();

  // Runs it here, after all background work, and returns done work. What it throws is thrown.
  WorkPtr run(const std::function<void()>& operation);
  WorkPtr run_in_background(std::function<void()> operation);

 private:
  class Task;
  void loop();

  std::shared_ptr<std::function<void()>> abort_;  // work may outlive its group
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> queue_;  // the front one runs
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme::comm
