// The clock that the flight recorder and profiles read: what they say can be laid side by side.
#pragma once

#include <chrono>
#include <cstdint>

namespace trireme {

// Nanoseconds since some instant before this host started; the same for all of its processes.
inline int64_t monotonic_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace trireme
