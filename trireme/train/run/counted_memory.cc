// libtorch has two places to count at.
//
// The hook: c10::MemoryReportingInfoBase in the slot PROFILER_STATE of ThreadLocalDebugInfo. It is
// not safe beside a profiler. torch's profiler takes whatever lies in the slot for a
// ProfilerStateBase of its own (ProfilerStateBase::get() in torch/csrc/profiler/orchestration), so
// it must not find a hook there. The slot that counts for a free is that of the thread that frees,
// so a block freed in a thread without the hook is never given back. And libtorch's allocator
// keeps a table of all blocks under one mutex meanwhile.
//
// The allocator: c10::SetCPUAllocator(). at::empty asks c10's table for each block, so an allocator
// that asks libtorch's own and counts sees every thread's blocks and every free. A profiler, whose
// hook lies below, in libtorch's own, works as before. This is what is done here.
//
// A block keeps its data as its context, because oneDNN takes blocks raw (raw_allocate() and
// raw_deallocate(), which demand that). So what a block was counted as lies in a table by address,
// in parts with a mutex each. The allocator is never taken out again: blocks outlive any user.
#include "trireme/train/run/counted_memory.h"

#include <array>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace trireme::train {
namespace {

class CountedBlocks {
 public:
  void add(const void* data, MemoryCharge charge) {
    Part& part = part_of(data);
    const std::lock_guard lock(part.mutex);
    part.charges[data] = std::move(charge);
  }
  // Of blocks that are not counted, does nothing.
  void remove(const void* data) {
    MemoryCharge charge;  // given back without the lock
    Part& part = part_of(data);
    const std::lock_guard lock(part.mutex);
    const auto found = part.charges.find(data);
    if (found == part.charges.end()) return;
    charge = std::move(found->second);
    part.charges.erase(found);
  }

 private:
  struct Part {
    std::mutex mutex;
    std::unordered_map<const void*, MemoryCharge> charges;
  };
  static constexpr size_t kParts = 16;

  Part& part_of(const void* data) {
    constexpr int kSameLine = 6;  // blocks begin at multiples of 64
    return parts_[(reinterpret_cast<uintptr_t>(data) >> kSameLine) % kParts];
  }

  std::array<Part, kParts> parts_;
};

class CountingAllocator final : public c10::Allocator {
 public:
  // libtorch's interface for an allocator has room for functions, and none for an object.
  static CountingAllocator& instance() {
    static auto* const allocator = new CountingAllocator(*c10::GetCPUAllocator());
    return *allocator;
  }

  c10::DataPtr allocate(size_t num_bytes) override {
    c10::DataPtr block = counted_.allocate(num_bytes);
    if (num_bytes < kFewestCountedBytes || block.get() != block.get_context()) return block;
    MemoryOwner owner = memory_owner();
    if (owner.ledger == nullptr) return block;
    if (!block.compare_exchange_deleter(block.get_deleter(), &release)) return block;
    blocks_.add(block.get(), MemoryCharge(static_cast<int64_t>(num_bytes), std::move(owner)));
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }

 private:
  explicit CountingAllocator(c10::Allocator& counted)
      : counted_(counted), free_(counted.raw_deleter()) {}

  static void release(void* data) {
    CountingAllocator& own = instance();
    own.blocks_.remove(data);  // first: another thread may get the address as soon as it is free
    own.free_(data);
  }

  c10::Allocator& counted_;
  const c10::DeleterFnPtr free_;
  CountedBlocks blocks_;
};

}  // namespace

std::shared_ptr<MemoryLedger> counting_ledger() {
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&CountingAllocator::instance()); });
  return MemoryLedger::make();
}

void set_memory(const MemoryByKind& memory, StepMetrics& metrics) {
  for (size_t i = 0; i < kNumMemoryKinds; ++i) metrics.*kMemoryFields[i] = memory.bytes[i];
}

}  // namespace trireme::train
