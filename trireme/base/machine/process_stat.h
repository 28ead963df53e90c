// The state of a process of this host, from /proc.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace trireme::inline internal {

struct ProcessStat {
  // R runs, S sleeps, D waits for a disk or a network file system, T is stopped, t is traced,
  // Z and X have ended.
  char state = '?';
  int64_t parent = 0;                   // its process id
  uint64_t start = 0;                   // clock ticks after boot
  std::chrono::nanoseconds cpu_time{};  // of all its threads, in steps of a clock tick
};

// Nothing when there is no such process, or this process may not see it.
std::optional<ProcessStat> process_stat(int64_t process_id);

// The most memory that this process has had resident so far.
int64_t peak_resident_bytes();

}  // namespace trireme::inline internal
