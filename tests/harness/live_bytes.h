// Told by libtorch of every allocation and release of a thread that has it as its profiler state:
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
    bytes_ += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }
  // Handed out and not got back.
  int64_t bytes() const { return bytes_; }

 private:
  std::atomic<int64_t> bytes_{0};
};

}  // namespace trireme::harness
