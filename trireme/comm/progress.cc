#include "trireme/comm/progress.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace trireme::comm {

// An operation and what became of it. Done work of foreground calls has no operation.
class Progress::Task : public Work {
 public:
  Task(std::function<void()> operation, std::weak_ptr<std::function<void()>> abort)
      : operation_(std::move(operation)), abort_(std::move(abort)), done_(operation_ == nullptr) {}

  void execute() {
    try {
      operation_();
    } catch (...) {
      error_ = std::current_exception();
    }
    operation_ = nullptr;  // lets go of the tensors
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
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
  int source() const override { return -1; }

 private:
  std::function<void()> operation_;
  std::weak_ptr<std::function<void()>> abort_;
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_;
  std::exception_ptr error_;
};

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    // A finished task may still be in the queue; leaving after it is no abort.
    const auto is_running = [](const auto& task) { return !task->poll(); };
    if (std::ranges::any_of(queue_, is_running)) (*abort_)();
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

WorkPtr Progress::run(const std::function<void()>& operation) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
  }
  operation();
  return std::make_shared<Task>(nullptr, abort_);
}

WorkPtr Progress::run_in_background(std::function<void()> operation) {
  auto task = std::make_shared<Task>(std::move(operation), abort_);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(task);
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_all();
  return task;
}

void Progress::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Task> task = queue_.front();
    lock.unlock();
    task->execute();
    lock.lock();
    queue_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace trireme::comm
