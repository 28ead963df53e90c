// What `trireme train` says of memory: the planned bytes of each kind before the first step, and
// the measured ones beside them after the last.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/train/metrics/metric_table.h"

namespace trireme::cli {

// Bytes in the order of MemoryKind.
using BytesByKind = std::array<double, kNumMemoryKinds>;

// Of the metrics of memory; nothing on GPUs, whose memory is not counted.
std::optional<BytesByKind> measured_memory(const train::StepMetrics& metrics);

// Wrapped at 80 columns.
std::string planned_lines(const BytesByKind& planned);
// A table of at most 80 columns, and which kind is furthest off. planned: nothing when there is no
// cost model of the run.
std::string memory_table(const std::optional<BytesByKind>& planned, const BytesByKind& measured);

}  // namespace trireme::cli
