// A comm::Work as the c10d::Work that torch.distributed waits on, and the threads that complete the
// futures of works that nobody waits on. Neither issues an operation; a future's callback, which
// runs on those threads, may.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

class C10dWatcher;

// Thread safe. May outlive its backend; when the backend ends, it fails.
class C10dWork : public c10d::Work {
 public:
  struct Description {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = nullptr;     // the profiler's event: "trireme:all_reduce"
    std::vector<at::Tensor> inputs;  // for the profiler
    std::vector<at::Tensor> outputs;
    uint64_t sequence = 0;
  };

  // Begins the profiler's events: one with the title, and one with Gloo's name for it, such as
  // "gloo:all_reduce", which tools look for. Without a profiler they cost nothing.
  C10dWork(int rank, Description description, std::weak_ptr<C10dWatcher> watcher);

  // `work` is the issued operation. `epilogue`, if set, runs once on success, before anyone sees
  // this completed. Call start() once, before the work is handed out.
  void start(WorkPtr work, std::function<void()> epilogue);

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return description_.outputs; }
  void synchronize() override {}
  // Throws: c10::DistBackendError when a peer died, or after `timeout`; the operation then
  //         continues
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  // Completes with the list of outputs.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return description_.sequence; }

  // Whether the operation is done. Unlike isCompleted(), it runs no epilogue and no callback.
  bool poll() const { return work_->poll(); }
  // Blocks at most `limit`, or until done in success or failure.
  void wait_briefly(std::chrono::milliseconds limit) noexcept;
  // Fails it with `reason` unless it is done.
  void abandon(const std::string& reason);

 private:
  void record_as_gloo();
  void settle();
  void conclude(std::exception_ptr error);
  void complete(c10::ivalue::Future& future) const;

  Description description_;
  std::weak_ptr<C10dWatcher> watcher_;
  WorkPtr work_;
  std::mutex settling_;  // guards what follows; never held while a future's callbacks run
  std::function<void()> epilogue_;
  bool settled_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Completes the futures of the works given to it, on its own threads. Callbacks of a future run on
// one of them while another watches the works that are left. A callback may therefore issue works
// and wait for their futures. Callbacks begin in the order in which works end. There are as many
// threads as callbacks that wait at the same time, and one more. The first work starts the first.
class C10dWatcher {
 public:
  C10dWatcher();
  // Fails works that are not done. Waits for running callbacks, but not without bound.
  ~C10dWatcher();
  C10dWatcher(const C10dWatcher&) = delete;
  C10dWatcher& operator=(const C10dWatcher&) = delete;

  void watch(c10::intrusive_ptr<C10dWork> work);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme::comm
