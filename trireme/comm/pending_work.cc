#include "trireme/comm/pending_work.h"

#include <utility>

#include <ATen/record_function.h>

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

}  // namespace trireme::comm
