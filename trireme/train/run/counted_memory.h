// Counts what libtorch allocates on the host in the ledger of who asked (MemoryScope), from the
// first call on and for the rest of the process. Large blocks that are freed are kept for the next
// allocations if the process keeps freed memory (set_freed_memory()).
// Memory of GPUs is not counted: their allocator is not asked through c10's table.
#pragma once

#include <memory>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/train/metrics/metric_table.h"

namespace trireme::train {

// Blocks below this are not counted. They are many, and small in sum.
inline constexpr size_t kFewestCountedBytes = 1024;

// A ledger that libtorch's allocations are counted in. Thread safe.
std::shared_ptr<MemoryLedger> counting_ledger();

// Sets the metrics of memory by kind.
void set_memory(const MemoryByKind& memory, StepMetrics& metrics);

}  // namespace trireme::train
