#include "trireme/comm/progress.h"

#include <exception>
#include <utility>

#include <ATen/record_function.h>

namespace trireme::comm {

Progress::~Progress() {
  if (num_pending_.load() != 0) abort_->abort();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Progress::wait_until_empty() {
  RECORD_USER_SCOPE(kWaitEvent);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return num_pending_.load() == 0; });
}

WorkPtr Progress::run_in_background(std::function<void()> operation) {
  auto work = std::make_shared<PendingWork>(abort_);
  {
    const std::lock_guard lock(mutex_);
    ++num_pending_;
    queue_.push_back({std::move(operation), work});
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_all();
  return work;
}

void Progress::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      task.operation();
    } catch (...) {
      error = std::current_exception();
    }
    task.operation = nullptr;  // releases the tensors
    lock.lock();
    // Before the work is done, because its waiter may destroy the group. That must not count as an
    // abort.
    --num_pending_;
    changed_.notify_all();
    task.work->finish(error);
  }
}

}  // namespace trireme::comm
