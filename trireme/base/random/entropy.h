// Random bytes of the kernel, for names that nobody else makes and secrets that nobody guesses.
// Never for numbers that a run must draw again (random.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trireme {

// Throws: Error when the kernel gives none
void fill_with_entropy(std::span<uint8_t> bytes);

// 128 random bits as 32 hexadecimal digits: unlike every other name, on any host, ever.
std::string unique_name();

}  // namespace trireme
