// Conversions between fp32 and bf16 on libtorch's threads. libtorch's own take 0.9 ns per number on
// a processor where these take the time of the memory.
#pragma once

#include <cstdint>

#include "trireme/base/machine/bf16_blocks.h"

namespace trireme {

// to = factor * from in fp32; narrow_numbers() then rounds to the nearest, ties to even.
// narrow_run() does so on this thread, for runs within a cache.
void narrow_numbers(const float* from, int64_t count, float factor, uint16_t* to);
void narrow_run(const float* from, int64_t count, float factor, uint16_t* to);
void widen_numbers(const uint16_t* from, int64_t count, float factor, float* to);

// from = high + low, up to 2^-16 of it: `high` is from rounded, `low` is what that leaves, rounded.
// Of an infinite number `low` is NaN.
// Shapes: from [rows, columns], its rows dense; high and low contiguous
void split_numbers(Rows<const float> from, int64_t rows, int64_t columns, uint16_t* high,
                   uint16_t* low);

}  // namespace trireme
