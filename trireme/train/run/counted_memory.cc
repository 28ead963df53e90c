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
// A step makes the blocks of the step before again, so large ones are kept for it (KeptBlocks)
// where the process asks for that (set_freed_memory()).
//
// A block keeps its data as its context, because oneDNN takes blocks raw (raw_allocate() and
// raw_deallocate(), which demand that). So what is known of a block lies in a table by address, in
// parts with a mutex each. The allocator is never taken out again: blocks outlive any user.
#include "trireme/train/run/counted_memory.h"

#include <array>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "trireme/base/machine/kept_blocks.h"
#include "trireme/base/machine/machine.h"

namespace trireme::train {
namespace {

// What the process knows of a block of libtorch's that it has to free in a way of its own.
struct KnownBlock {
  MemoryCharge charge{};
  size_t reusable_bytes = 0;  // 0: freed rather than kept
};

class KnownBlocks {
 public:
  void add(const void* data, KnownBlock block) {
    Part& part = part_of(data);
    const std::lock_guard lock(part.mutex);
    part.blocks[data] = std::move(block);
  }
  // Of blocks that were not added, one that is not counted and not kept.
  KnownBlock remove(const void* data) {
    Part& part = part_of(data);
    const std::lock_guard lock(part.mutex);
    const auto found = part.blocks.find(data);
    if (found == part.blocks.end()) return {};
    KnownBlock block = std::move(found->second);
    part.blocks.erase(found);
    return block;
  }

 private:
  struct Part {
    std::mutex mutex;
    std::unordered_map<const void*, KnownBlock> blocks;
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
    KnownBlock known;
    const bool reusable =
        num_bytes >= kFewestReusedBytes && keeps_freed_memory() && !c10::memoryProfilingEnabled();
    c10::DataPtr block =
        reusable ? reuse(num_bytes, known.reusable_bytes) : counted_.allocate(num_bytes);
    MemoryOwner owner = num_bytes < kFewestCountedBytes ? MemoryOwner{} : memory_owner();
    if (owner.ledger == nullptr && known.reusable_bytes == 0) return block;
    if (!is_ours(block)) return block;
    if (owner.ledger != nullptr)
      known.charge = MemoryCharge(static_cast<int64_t>(num_bytes), std::move(owner));
    blocks_.add(block.get(), std::move(known));
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }

 private:
  explicit CountingAllocator(c10::Allocator& counted)
      : counted_(counted), free_(counted.raw_deleter()) {}

  static bool is_ours(c10::DataPtr& block) {
    return block.get() == block.get_context() &&
           (block.get_deleter() == &release ||
            block.compare_exchange_deleter(block.get_deleter(), &release));
  }

  // A block that was freed before, if one fits. A profiler of memory sees each block when it is
  // allocated and when it is freed, so none is reused while one looks.
  c10::DataPtr reuse(size_t num_bytes, size_t& reusable_bytes) {
    std::vector<void*> evicted;
    const KeptBlocks::Block kept = kept_.take(num_bytes, evicted);
    for (void* const data : evicted) free_(data);
    reusable_bytes = kept.bytes;
    if (kept.data != nullptr)
      return {kept.data, kept.data, &release, c10::Device(c10::DeviceType::CPU)};
    c10::DataPtr block = allocate_or_release_all(num_bytes);
    if (!is_ours(block)) kept_.forget(std::exchange(reusable_bytes, 0));
    return block;
  }

  // Where memory has run out, what is kept may be enough.
  c10::DataPtr allocate_or_release_all(size_t num_bytes) {
    try {
      return counted_.allocate(num_bytes);
    } catch (const c10::Error&) {
      const std::vector<void*> all = kept_.release_all();
      for (void* const data : all) free_(data);
      if (!all.empty()) try {
          return counted_.allocate(num_bytes);
        } catch (const c10::Error&) {
        }
      kept_.forget(num_bytes);
      throw;
    }
  }

  static void release(void* data) {
    CountingAllocator& own = instance();
    // First: another thread may get the address as soon as it is free.
    const KnownBlock known = own.blocks_.remove(data);
    if (known.reusable_bytes == 0) return own.free_(data);
    if (!c10::memoryProfilingEnabled()) return own.kept_.keep({data, known.reusable_bytes});
    own.kept_.forget(known.reusable_bytes);
    own.free_(data);
  }

  c10::Allocator& counted_;
  const c10::DeleterFnPtr free_;
  KnownBlocks blocks_;
  KeptBlocks kept_;
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
