// Counts the bytes that libtorch has allocated and not released. libtorch reports the allocations
// and releases of a thread while this is the thread's profiler state:
//   const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
#pragma once

#include <atomic>
#include <cstdint>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace trireme::harness {

// Thread safety: any thread.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    const int64_t now = bytes_ += bytes;
    int64_t peak = peak_;
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
  // Bytes allocated and not yet released.
  int64_t bytes() const { return bytes_; }
  // The most there have been at once.
  int64_t peak() const { return peak_; }

 private:
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> peak_{0};
};

}  // namespace trireme::harness
