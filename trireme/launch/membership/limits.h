// Bounds of what agents tell each other. They are trusted as far as they know the job's token, yet
// a bug on one host must not exhaust another.
#pragma once

#include <cstddef>

#include "trireme/base/bounded_json.h"

namespace trireme::launch::inline internal {

inline constexpr int kMaxHosts = 1 << 16;
inline constexpr int kMaxWorkers = 1 << 12;  // of a host
inline constexpr int kMaxRanks = 1 << 20;
inline constexpr int kMaxEpoch = 1 << 30;
inline constexpr size_t kMaxReasonBytes = 500;
inline constexpr size_t kMaxProgramBytes = size_t{64} << 10;
inline constexpr JsonLimits kMessageLimits{
    .max_bytes = size_t{8} << 20, .max_values = size_t{1} << 20, .max_depth = 6};

}  // namespace trireme::launch::inline internal
