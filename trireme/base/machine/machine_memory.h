// The most memory that a process can get on this machine, whatever others use of it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::inline internal {

// Bytes of memory and swap of this machine, or less where a control group of this process (v1 or
// v2, as containers and batch systems set them) allows less. The largest int64_t where neither is
// known. `root` contains proc/ and sys/.
int64_t machine_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace trireme::inline internal
