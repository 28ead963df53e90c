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

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

namespace trireme {

enum class MemoryKind : uint8_t {
  kWeights,      // what a rank keeps of the parameters from step to step
  kGradients,    // what it keeps of the gradients from microbatch to microbatch
  kStates,       // optimizer states, master weights among them, and the buffers of their store
  kActivations,  // all that forward and backward make and nobody else claims
  kGathered,     // units of parameters that ZeRO-3 has gathered
  kBuckets,      // gradients on their way
  kOther
};
inline constexpr size_t kNumMemoryKinds = 7;
inline constexpr std::array<std::string_view, kNumMemoryKinds> kMemoryKinds = {
    "weights", "gradients", "states", "activations", "gathered", "buckets", "other"};

struct MemoryByKind {
  std::array<int64_t, kNumMemoryKinds> bytes{};

  int64_t& operator[](MemoryKind kind) { return bytes[static_cast<size_t>(kind)]; }
  int64_t operator[](MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
  int64_t total() const;
  bool operator==(const MemoryByKind&) const = default;
};

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

 private:
  MemoryLedger() = default;

  mutable std::mutex mutex_;
  int64_t total_ = 0;
  int64_t peak_ = 0;
  MemoryUse use_;
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
  MemoryOwner owner_;
};

}  // namespace trireme
