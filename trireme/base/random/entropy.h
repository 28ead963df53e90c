// Random bytes from the kernel, for unique names and for secrets. Never for numbers that a run must
// reproduce (random.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trireme::inline internal {

// Throws: Error when the kernel gives none
void fill_with_entropy(std::span<uint8_t> bytes);

// 128 random bits as 32 hexadecimal digits: a name that no process on any host makes twice.
std::string unique_name();

}  // namespace trireme::inline internal
