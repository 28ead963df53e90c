// Works whose operation is done when the test says so.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/c10d_work.h"

namespace trireme::comm {

class FakeWork : public Work {
 public:
  void finish(std::string error = "") {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    if (!error_.empty()) throw CommError(error_);
  }
  bool wait_for(std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return done_; })) return false;
    if (!error_.empty()) throw CommError(error_);
    return true;
  }
  bool poll() override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void abort() override { finish("aborted"); }
  int source() const override { return 3; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::string error_;
};

struct Issued {
  explicit Issued(const std::shared_ptr<C10dWatcher>& watcher, std::function<void()> epilogue = {},
                  at::Tensor result = at::arange(3))
      : output(std::move(result)),
        work(c10::make_intrusive<C10dWork>(
            0, C10dWork::Description{c10d::OpType::ALLREDUCE, nullptr, {}, {output}, 7}, watcher)) {
    work->start(fake, std::move(epilogue));
  }
  std::shared_ptr<FakeWork> fake = std::make_shared<FakeWork>();
  at::Tensor output;
  c10::intrusive_ptr<C10dWork> work;
};

}  // namespace trireme::comm
