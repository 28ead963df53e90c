// Clocks, and durations as numbers of seconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace trireme {

// The clock of the flight recorder and of profiles, so that their times can be compared.
// Nanoseconds since a fixed instant before this host started, the same for all its processes.
inline int64_t monotonic_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Rep, typename Period>
double in_seconds(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::duration<double>(duration).count();
}

// The time of day in seconds since 1970, UTC.
inline double unix_seconds() {
  return in_seconds(std::chrono::system_clock::now().time_since_epoch());
}

template <typename Clock>
double seconds_since(std::chrono::time_point<Clock> start) {
  return in_seconds(Clock::now() - start);
}

}  // namespace trireme
