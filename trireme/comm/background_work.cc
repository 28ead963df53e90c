#include "trireme/comm/background_work.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

namespace trireme::comm {
namespace {

class DoneWork : public Work {
 public:
  void wait() override {}
  bool wait_for(std::chrono::milliseconds) override { return true; }
  bool poll() override { return true; }
  void abort() override {}
  int source() const override { return -1; }
};

}  // namespace

void PendingWork::finish(std::exception_ptr error, int source) {
  const std::lock_guard lock(mutex_);
  done_ = true;
  source_ = source;
  error_ = std::move(error);
  finished_.notify_all();
}

void PendingWork::wait() {
  std::unique_lock lock(mutex_);
  if (!done_) {
    RECORD_USER_SCOPE(kWaitEvent);
    finished_.wait(lock, [this] { return done_; });
  }
  if (error_) std::rethrow_exception(error_);
}

bool PendingWork::wait_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (!finished_.wait_for(lock, limit, [this] { return done_; })) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}

bool PendingWork::poll() {
  const std::lock_guard lock(mutex_);
  return done_;
}

int PendingWork::source() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

WorkPtr done_work() {
  // Stateless. One per thread, so that ranks that are threads share no reference count.
  thread_local const WorkPtr work = std::make_shared<DoneWork>();
  return work;
}

Progress::~Progress() {
  // Nobody will wait for them any more.
  // A running operation may wait for peers that never come, and join() would wait with it.
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
    // Made with the first call in the background.
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

WorkQueue::~WorkQueue() {
  bool is_busy = false;
  {
    const std::lock_guard lock(mutex_);
    // Finished work may still be in running_. Ending after it is not an abort.
    is_busy = !tasks_.empty() ||
              std::ranges::any_of(running_, [](const auto& work) { return !work->poll(); });
    stop_ = true;
  }
  if (is_busy) abort_->abort();
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

WorkPtr WorkQueue::run_beside(std::function<int()> operation, bool background) {
  auto work = std::make_shared<PendingWork>(abort_);
  if (!background) {
    const c10::NoGradGuard no_grad;
    work->finish(nullptr, operation());
    return work;
  }
  {
    const std::lock_guard lock(mutex_);
    // A thread for each message under way, as one may wait for another. It comes before the task,
    // because the system may have no more threads.
    if (running_.size() + tasks_.size() >= threads_.size()) {
      // They are kept, so there are as many as messages were ever under way at one time.
      threads_.emplace_back([this] { loop(); });
    }
    tasks_.push_back({std::move(operation), work});
  }
  changed_.notify_one();
  return work;
}

void WorkQueue::loop() {
  // Autograd's mode belongs to the thread, and a new one records.
  const c10::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    running_.push_back(task.work);
    lock.unlock();
    int source = -1;
    std::exception_ptr error;
    try {
      source = task.operation();
    } catch (...) {
      error = std::current_exception();
    }
    task.operation = nullptr;  // releases the tensors
    task.work->finish(error, source);
    lock.lock();
    std::erase(running_, task.work);
  }
}

}  // namespace trireme::comm
