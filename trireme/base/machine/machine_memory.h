// What a process can get of this machine's memory, and what it keeps of it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::inline internal {

// Bytes of memory and swap of this machine, or less where a control group of this process (v1 or
// v2, as containers and batch systems set them) allows less. The largest int64_t where neither is
// known. `root` contains proc/ and sys/.
int64_t machine_memory_bytes(const std::filesystem::path& root = "/");

// Makes this process keep the memory that it frees, except blocks above 32 MiB, for its next
// allocations. By default glibc returns it to the system after each training step, and the next one
// waits for the same pages to be filled with zeros: 2 to 13 % of a step. The most that the process
// has in use at a time stays the same. Does nothing with another C library.
void keep_freed_memory();

}  // namespace trireme::inline internal
