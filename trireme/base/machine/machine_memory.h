// How much memory there is for a process at all, however much of it others use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme {

// Bytes of memory and swap of this machine; less where a control group of this process (v1 or v2,
// as containers and batch systems set them) allows less. The largest number where nothing is
// known. `root` has proc/ and sys/.
int64_t machine_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace trireme
