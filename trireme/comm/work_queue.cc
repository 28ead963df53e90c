#include "trireme/comm/work_queue.h"

#include <exception>
#include <limits>
#include <utility>

#include <c10/core/GradMode.h>

namespace trireme::comm {

// An operation and what became of it. Done work of foreground calls has no operation.
class WorkQueue::Task : public Work {
 public:
  Task(Operation operation, std::weak_ptr<std::function<void()>> abort)
      : operation_(std::move(operation)), abort_(std::move(abort)) {}
  Task(int source, std::weak_ptr<std::function<void()>> abort)
      : abort_(std::move(abort)), done_(true), source_(source) {}

  void execute() {
    int source = -1;
    std::exception_ptr error;
    try {
      const c10::NoGradGuard no_grad;  // autograd has no say in what is communicated
      source = operation_();
    } catch (...) {
      error = std::current_exception();
    }
    operation_ = nullptr;  // lets go of the tensors
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      source_ = source;
      error_ = error;
    }
    finished_.notify_all();
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
    if (error_) std::rethrow_exception(error_);
  }
  bool wait_for(std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    if (!finished_.wait_for(lock, limit, [this] { return done_; })) return false;
    if (error_) std::rethrow_exception(error_);
    return true;
  }
  bool poll() override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void abort() override {
    if (const auto abort = abort_.lock()) (*abort)();
  }
  int source() const override {
    const std::lock_guard lock(mutex_);
    return source_;
  }

 private:
  Operation operation_;
  std::weak_ptr<std::function<void()>> abort_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  int source_ = -1;
  std::exception_ptr error_;
};

WorkQueue::~WorkQueue() {
  bool is_busy = false;
  {
    const std::lock_guard lock(mutex_);
    for (const Lane* lane : {&ordered_, &beside_}) {
      is_busy |= lane->num_running > 0 || !lane->tasks.empty();
    }
    stop_ = true;
  }
  if (is_busy) (*abort_)();
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

WorkPtr WorkQueue::run_here(const Operation& operation) {
  const c10::NoGradGuard no_grad;
  return std::make_shared<Task>(operation(), abort_);
}

WorkPtr WorkQueue::run_in_order(Operation operation, bool background) {
  if (background) return enqueue(ordered_, std::move(operation), 1);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ordered_.tasks.empty() && ordered_.num_running == 0; });
  }
  return run_here(operation);
}

WorkPtr WorkQueue::run_beside(Operation operation, bool background) {
  if (!background) return run_here(operation);
  return enqueue(beside_, std::move(operation), std::numeric_limits<int>::max());
}

WorkPtr WorkQueue::enqueue(Lane& lane, Operation operation, int most_threads) {
  auto task = std::make_shared<Task>(std::move(operation), abort_);
  {
    const std::lock_guard lock(mutex_);
    lane.tasks.push_back(task);
    const int wanted = lane.num_running + static_cast<int>(lane.tasks.size());
    if (wanted > lane.num_threads && lane.num_threads < most_threads) {
      ++lane.num_threads;
      threads_.emplace_back([this, &lane] { loop(lane); });
    }
  }
  changed_.notify_all();
  return task;
}

void WorkQueue::loop(Lane& lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !lane.tasks.empty(); });
    if (lane.tasks.empty()) return;
    const std::shared_ptr<Task> task = std::move(lane.tasks.front());
    lane.tasks.pop_front();
    ++lane.num_running;
    lock.unlock();
    task->execute();
    lock.lock();
    --lane.num_running;
    changed_.notify_all();
  }
}

}  // namespace trireme::comm
