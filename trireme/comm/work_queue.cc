#include "trireme/comm/work_queue.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <c10/core/GradMode.h>

namespace trireme::comm {

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

WorkPtr WorkQueue::run_in_order(std::function<void()> operation, bool background) {
  // Communication is never recorded by autograd, whatever thread it runs on.
  auto without_grad = [operation = std::move(operation)] {
    const c10::NoGradGuard no_grad;
    operation();
  };
  if (background) return ordered_.run_in_background(std::move(without_grad));
  return ordered_.run(without_grad);
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
    tasks_.push_back({std::move(operation), work});
    if (running_.size() + tasks_.size() > threads_.size()) {
      threads_.emplace_back([this] { loop(); });
    }
  }
  changed_.notify_one();
  return work;
}

void WorkQueue::loop() {
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
