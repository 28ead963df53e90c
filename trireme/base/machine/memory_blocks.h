// The living blocks of a ledger, with the operation and the part of the model that made each, and
// the largest of them when their sum was largest. A ledger has them only if it is asked to
// (MemoryLedger::watch_blocks()); otherwise nothing here runs.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/base/machine/memory_kind.h"

namespace trireme {

struct MemoryBlock {
  int64_t bytes = 0;
  MemoryKind kind = MemoryKind::kOther;
  std::string operation{};  // "": none was running
  std::string unit{};       // of the model; "": none was running
};

struct MemorySnapshot {
  int64_t step = 0;  // that was being made; 0: before the first
  MemoryByKind kinds{};
  std::vector<MemoryBlock> largest{};  // the largest first
  int64_t failed_bytes = 0;            // that could not be allocated now; 0: it is a peak
};

// The name of what the calling thread runs, for the blocks that it makes meanwhile. The outermost
// counts: a sum within a softmax is the softmax's. `name` outlives the scope.
void enter_memory_operation(const char* name);
void leave_memory_operation();

// Names the part of the model that the calling thread runs while this lives.
class MemoryUnit {
 public:
  explicit MemoryUnit(const std::string& name);  // outlives this
  ~MemoryUnit();
  MemoryUnit(const MemoryUnit&) = delete;
  MemoryUnit& operator=(const MemoryUnit&) = delete;

 private:
  const std::string* outer_;
};

// Thread safety: any thread may call any method.
class MemoryBlocks {
 public:
  static constexpr size_t kMostBlocks = 100;  // of a snapshot

  // Called for each snapshot, one at a time, in the thread that allocates. Must not throw, nor
  // allocate with libtorch.
  using OnSnapshot = std::function<void(const MemorySnapshot&)>;
  explicit MemoryBlocks(OnSnapshot on_snapshot) : on_snapshot_(std::move(on_snapshot)) {}

  void set_step(int64_t step);
  // Takes a snapshot if the sum is above that of the one before: by 1/8 until the first step has
  // ended, so that a start to 10 GiB takes about 140, then by 1 %. Returns the block's number.
  uint64_t add(MemoryKind kind, int64_t bytes);
  void remove(uint64_t number);
  // `bytes` could not be allocated: takes a snapshot of what there is.
  void fail(int64_t bytes);
  // The newest; of a failure if there was one.
  MemorySnapshot snapshot() const;

 private:
  struct Block {
    int64_t bytes;
    MemoryKind kind;
    const std::string* operation;
    const std::string* unit;
  };

  const std::string* kept(std::string_view name);
  void take(int64_t failed_bytes);

  const OnSnapshot on_snapshot_;
  mutable std::mutex mutex_;
  std::set<std::string, std::less<>> names_;
  std::unordered_map<uint64_t, Block> blocks_;
  MemoryByKind kinds_;
  int64_t total_ = 0;
  int64_t taken_ = 0;  // the sum at the last snapshot
  uint64_t last_number_ = 0;
  int64_t step_ = 0;
  bool has_made_step_ = false;
  MemorySnapshot snapshot_;
};

}  // namespace trireme
