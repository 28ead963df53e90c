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

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "trireme/base/machine/kept_blocks.h"
#include "trireme/base/machine/machine.h"

namespace trireme::train {
namespace {

// What a snapshot tells of an allocation that failed: its readers take no more.
constexpr size_t kMostAsked = size_t{1} << 60;

constexpr size_t kHugePage = size_t{2} << 20;

// A block of libtorch's that is counted, or freed in another way than libtorch's.
struct KnownBlock {
  MemoryCharge charge{};
  size_t reusable_bytes = 0;  // of pages of its own; 0: libtorch frees it
};

class KnownBlocks {
 public:
  void add(const void* data, KnownBlock& block) {
    Part& part = part_of(data);
    const std::lock_guard lock(part.mutex);
    KnownBlock& place = part.blocks[data];
    place = std::move(block);
  }
  // An empty one if the block was not added.
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
    constexpr int kSameLine = 6, kSamePage = 12;  // blocks begin at multiples of 64 or 4096
    const auto address = reinterpret_cast<uintptr_t>(data);
    return parts_[((address >> kSameLine) ^ (address >> kSamePage)) % kParts];
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
    MemoryOwner owner = num_bytes < kFewestCountedBytes ? MemoryOwner{} : memory_owner();
    c10::DataPtr block;
    try {
      block = reusable ? reuse(num_bytes, known.reusable_bytes) : counted_.allocate(num_bytes);
    } catch (...) {
      MemoryBlocks* const blocks = owner.ledger == nullptr ? nullptr : owner.ledger->blocks();
      if (blocks != nullptr) blocks->fail(static_cast<int64_t>(std::min(num_bytes, kMostAsked)));
      throw;
    }
    if (owner.ledger == nullptr && known.reusable_bytes == 0) return block;
    if (!is_ours(block)) return block;
    try {
      if (owner.ledger != nullptr)
        known.charge = MemoryCharge(static_cast<int64_t>(num_bytes), std::move(owner));
      blocks_.add(block.get(), known);
    } catch (...) {  // libtorch must not free what is not its own
      if (known.reusable_bytes != 0) kept_.keep({block.release_context(), known.reusable_bytes});
      throw;
    }
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

  // A block that was freed before, if one fits. Otherwise one in pages of its own, so that freeing
  // it returns them. A profiler of memory sees each block when it is allocated and when it is
  // freed, so none is reused while one looks.
  c10::DataPtr reuse(size_t num_bytes, size_t& reusable_bytes) {
    std::vector<KeptBlocks::Block> unmapped;
    KeptBlocks::Block block = kept_.take(num_bytes, unmapped);
    unmap(unmapped);
    if (block.data == nullptr) block.data = map(num_bytes);
    if (block.data == nullptr) {  // what is kept may be enough
      unmap(kept_.release_all());
      block.data = map(num_bytes);
    }
    if (block.data == nullptr) {
      kept_.forget(num_bytes);
      return counted_.allocate(num_bytes);  // says what libtorch says
    }
    reusable_bytes = block.bytes;
    return {block.data, block.data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  // Where the kernel grants huge pages on request, blocks that have room for one begin at one, so
  // that a step looks up fewer pages.
  static void* map(size_t num_bytes) {
    const size_t room = num_bytes < kHugePage ? 0 : kHugePage;
    void* const data = ::mmap(nullptr, num_bytes + room, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
    if (data == MAP_FAILED) return nullptr;
    if (room == 0) return data;
    auto* const first = static_cast<std::byte*>(data);
    const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
    if (before > 0) ::munmap(first, before);
    std::byte* const begin = first + before;
    // A whole number of small pages, as munmap() wants.
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t kept = (num_bytes + page - 1) / page * page;
    if (before + kept < num_bytes + room) ::munmap(begin + kept, num_bytes + room - before - kept);
    ::madvise(begin, num_bytes, MADV_HUGEPAGE);
    return begin;
  }
  static void unmap(std::span<const KeptBlocks::Block> blocks) {
    for (const KeptBlocks::Block& block : blocks) ::munmap(block.data, block.bytes);
  }

  static void release(void* data) {
    CountingAllocator& own = instance();
    // First: another thread may get the address as soon as it is free.
    KnownBlock known = own.blocks_.remove(data);
    known.charge = {};
    if (known.reusable_bytes == 0) return own.free_(data);
    own.kept_.keep({data, known.reusable_bytes});
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
