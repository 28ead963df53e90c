// Conversions between fp32 and bf16 on libtorch's threads. libtorch's own take 0.9 ns per number on
// a processor where these take the time of the memory.
#pragma once

#include <cstdint>

namespace trireme {

// to = factor * from in fp32; narrow_numbers() then rounds to the nearest, ties to even.
// narrow_run() does so on this thread, for runs within a cache.
void narrow_numbers(const float* from, int64_t count, float factor, uint16_t* to);
void narrow_run(const float* from, int64_t count, float factor, uint16_t* to);
void widen_numbers(const uint16_t* from, int64_t count, float factor, float* to);

}  // namespace trireme
