// AsyncIo with two threads that call pread and pwrite. Works on every file and kernel.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "trireme/base/io/async_io.h"

namespace trireme::inline internal {

class ThreadIo : public AsyncIo {
 public:
  explicit ThreadIo(IoFile file);
  ~ThreadIo() override;

  Ticket start(const IoRequest& request) override;
  void wait(Ticket ticket) override;
  std::string name() const override { return "threads"; }

 private:
  struct Outcome {
    bool is_done = false;
    int code = 0;         // errno; 0: success
    uint64_t offset = 0;  // where it failed
    IoKind kind = IoKind::kRead;
  };

  void work();
  Outcome transfer(const IoRequest& request) const;

  const IoFile file_;
  std::mutex mutex_;
  std::condition_variable wanted_, finished_;
  std::deque<std::pair<Ticket, IoRequest>> queue_;
  std::map<Ticket, Outcome> outcomes_;
  Ticket next_ = 0;
  bool is_stopping_ = false;
  std::array<std::thread, 2> threads_;  // one reads ahead while the other writes back
};

}  // namespace trireme::inline internal
