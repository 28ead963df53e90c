// What a process can get of this machine's memory, and what it keeps of it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::inline internal {

// Bytes of memory and swap of this machine, or less where a control group of this process (v1 or
// v2, as containers and batch systems set them) allows less. The largest int64_t where neither is
// known. `root` contains proc/ and sys/.
int64_t machine_memory_bytes(const std::filesystem::path& root = "/");

// What becomes of memory that this process frees.
enum class FreedMemory {
  // Blocks up to 32 MiB stay for the next allocations, at most a sixteenth of
  // machine_memory_bytes(). By default glibc returns them to the system after each training step,
  // and the next one waits for the same pages to be filled with zeros: 2 to 13 % of a step.
  kKept,
  // Blocks of 1 MiB and more are returned at once. glibc before 2.38 loses aligned ones between
  // small ones otherwise: a checkpoint of states on a disk took 190 MiB more than it needs.
  kReturned
};
// With a resource limit on this process's memory it is always returned. Does nothing with another C
// library.
void set_freed_memory(FreedMemory fate);

}  // namespace trireme::inline internal
