// The clock of the flight recorder and of profiles, so that their times can be compared.
#pragma once

#include <chrono>
#include <cstdint>

namespace trireme::inline internal {

// Nanoseconds since a fixed instant before this host started, the same for all its processes.
inline int64_t monotonic_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace trireme::inline internal
