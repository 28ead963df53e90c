// Reads microbatches, ahead of the step that asks for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/dataset/batch_loader.h"

namespace trireme::dataset {

struct BatchReaderOptions {
  int num_workers = 0;    // threads that read ahead; 0: none, the caller reads
  int64_t num_ahead = 2;  // microbatches per worker that are read or being read, at most
  int64_t num_steps = 0;  // the run's; nothing is read ahead beyond
  // Where batches will be copied: unless it is the CPU, into memory from which its copies run in
  // the background.
  at::Device device = at::kCPU;
  // Called about twice a second while read() waits for a thread, in its thread. What it throws ends
  // the wait. Null: nothing.
  std::function<void()> on_wait = nullptr;
};

// Microbatches of a loader in their order: index 0, 1, … of a step, then the next step's. Another
// position than the next one drops what was read ahead. What a microbatch holds does not depend on
// the threads.
// Memory: num_workers * num_ahead microbatches
// One thread calls it.
class BatchReader {
 public:
  // Throws: as BatchLoader
  BatchReader(const Source& source, const BatchOptions& batches, const BatchReaderOptions& options);
  // Waits for the microbatches that are being read.
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Until use_shares().
  const BatchLoader& loader() const { return *loader_; }

  // What is read from now on has these shares, as BatchLoader::with(). Drops what was read ahead.
  void use_shares(std::vector<Shares> shares);

  // Throws: what the source throws for this microbatch; what on_wait throws
  Batch read(int64_t step, int64_t index);

  // The microbatches of a step, which read() returns again when it comes to them. Tensors are
  // shared, not copied.
  // Throws: as read()
  std::vector<Batch> peek(int64_t step);

  // How long read() and peek() took since the last call.
  std::chrono::nanoseconds take_waiting();

 private:
  // A microbatch's place in the order.
  struct Position {
    int64_t step = 0;
    int64_t index = 0;
    bool operator==(const Position&) const = default;
  };
  // A microbatch in the queue. A worker fills it in.
  struct Slot {
    Position position{};
    bool is_taken = false;
    bool is_done = false;
    std::optional<Batch> batch{};
    std::exception_ptr error{};
  };

  Position after(Position position) const;
  Batch load(const BatchLoader& loader, Position position) const;
  Batch read_next(Position position);
  void await(const Slot& slot, std::unique_lock<std::mutex>& lock);
  void work();
  void restart(Position position);
  void refill();
  void add_slot();

  // Workers that read for one that was replaced keep it. Of the calling thread; workers read it
  // under the lock.
  std::shared_ptr<const BatchLoader> loader_;
  BatchReaderOptions options_;
  std::chrono::nanoseconds waiting_{};
  std::deque<std::pair<Position, Batch>> peeked_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Slot>> slots_;  // in the order, without gaps
  Position next_{};                          // of the slot to add
  bool is_ending_ = false;
  std::vector<std::thread> workers_;  // last: they use all of the above
};

}  // namespace trireme::dataset
