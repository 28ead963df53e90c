// Durations as numbers of seconds, for messages and metrics.
#pragma once

#include <chrono>

namespace trireme::inline internal {

template <typename Rep, typename Period>
double in_seconds(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::duration<double>(duration).count();
}

template <typename Clock>
double seconds_since(std::chrono::time_point<Clock> start) {
  return in_seconds(Clock::now() - start);
}

}  // namespace trireme::inline internal
