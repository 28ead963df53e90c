// Facts of this machine and of processes: cores, memory, and what /proc says.
#pragma once

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace trireme {

// The processor cores that a process may use.

using CoreSet = std::bitset<1024>;  // 128 bytes, readable by other processes of the host

// The cores this thread may run on; at least one.
CoreSet allowed_cores();
int num_cores();

// Whether threads restricted to `sets` can all run at once, each on its own core.
bool have_core_each(std::span<const CoreSet> sets);

// The memory of this machine that a process can get, and that it keeps.

// Bytes of memory and swap of this machine, or less where a control group of this process (v1 or
// v2, as containers and batch systems set them) allows less. The largest int64_t where neither is
// known. `root` contains proc/ and sys/.
int64_t machine_memory_bytes(const std::filesystem::path& root = "/");

// The policy for memory that this process frees.
enum class FreedMemory {
  // libtorch's blocks of kFewestReusedBytes and more stay for the next ones (kept_blocks.h), from
  // the first Trainer on. Of other memory the C library keeps blocks up to 32 MiB, at most a
  // sixteenth of machine_memory_bytes(). By default glibc returns both to the system after each
  // training step, and the next one waits for the same pages to be filled with zeros: 12 to 30 % of
  // a step.
  kKept,
  // Blocks of 1 MiB and more are returned at once. glibc before 2.38 loses aligned ones between
  // small ones otherwise: a checkpoint of states on a disk took 190 MiB more than it needs.
  kReturned
};
inline constexpr size_t kFewestReusedBytes = size_t{1} << 20;

// With a resource limit on this process's memory it is always returned. With another C library than
// glibc this only decides about libtorch's large blocks.
void set_freed_memory(FreedMemory fate);
bool keeps_freed_memory();  // false until set_freed_memory()

// The state of a process of this host, from /proc.

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

}  // namespace trireme
