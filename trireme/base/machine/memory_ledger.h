// The bytes that a rank holds, by kind: where its memory went, in numbers that add up. A ledger
// only counts; it allocates nothing for its user. Who allocates says what for, with a MemoryScope
// around it, and the ledger of the thread's scope takes the bytes. libtorch's blocks are counted
// where they are allocated (train/run/counted_memory.h). Other memory is told with a MemoryCharge.
//
// Ranks may be threads of one process, so each has a ledger of its own, and a thread counts for the
// ledger of its innermost scope that names one. A thread without such a scope (libtorch's own,
// readers, writers) counts for the process's ledger if there is only one. Otherwise it is not
// counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "trireme/base/machine/memory_blocks.h"
#include "trireme/base/machine/memory_kind.h"

namespace trireme {

struct MemoryUse {
  MemoryByKind now{};
  MemoryByKind most{};     // of each kind; not at the same moment
  MemoryByKind at_peak{};  // when their sum was largest
};

// Thread safety: any thread may call any method.
class MemoryLedger {
 public:
  // Blocks and charges keep their ledger alive.
  static std::shared_ptr<MemoryLedger> make();

  // bytes: negative when they are given back.
  void add(MemoryKind kind, int64_t bytes);
  MemoryUse use() const;

  // From here on the ledger knows each block. Call once, before much is allocated: what lives
  // already is not among them.
  void watch_blocks(MemoryBlocks::OnSnapshot on_snapshot);
  // Null without watch_blocks().
  MemoryBlocks* blocks() const { return watched_.load(std::memory_order_acquire); }

 private:
  MemoryLedger() = default;

  mutable std::mutex mutex_;
  int64_t total_ = 0;
  int64_t peak_ = 0;
  MemoryUse use_;
  std::unique_ptr<MemoryBlocks> blocks_;
  std::atomic<MemoryBlocks*> watched_ = nullptr;  // blocks_, for threads that allocate meanwhile
};

// Who pays for what the calling thread allocates now.
struct MemoryOwner {
  std::shared_ptr<MemoryLedger> ledger{};  // null: nobody
  MemoryKind kind = MemoryKind::kOther;
};
MemoryOwner memory_owner();

// Names the kind, and perhaps the ledger, of what this thread allocates while the scope lives. The
// innermost scope counts. A block is counted under the kind that it was allocated as until it is
// freed, wherever that happens.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind);
  MemoryScope(MemoryKind kind, std::shared_ptr<MemoryLedger> ledger);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  friend MemoryOwner memory_owner();

  MemoryOwner owner_;
  const MemoryScope* outer_;
};

// Counts memory that libtorch's allocator does not see, as long as this lives.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  explicit MemoryCharge(int64_t bytes);  // for memory_owner()
  MemoryCharge(int64_t bytes, MemoryOwner owner);
  ~MemoryCharge();
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;

 private:
  int64_t bytes_ = 0;
  uint64_t block_ = 0;  // its number among the ledger's blocks; 0: it has none
  MemoryOwner owner_;
};

}  // namespace trireme
