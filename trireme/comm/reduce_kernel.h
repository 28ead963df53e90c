// The arithmetic of a reduction: outs[i] = op over ranks of inputs[r][i], always in rank order,
// whatever the block it is called on. 16-bit floats accumulate in fp32 and round once.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Throws: ConfigError when `operation` is not defined on `dtype` (bitwise on floats, average on
// integers)
void check_reducible(c10::ScalarType dtype, ReduceOp operation);

// inputs: one pointer a rank, each to `count` elements. The result goes to each of `outs`, which
// may be inputs too.
void reduce_in_rank_order(std::span<void* const> outs, std::span<const void* const> inputs,
                          int64_t count, c10::ScalarType dtype, ReduceOp operation);

// What an average does to its sum: of float, double or complex numbers, in place, part by part.
void divide_elements(void* data, int64_t count, c10::ScalarType dtype, int divisor);

const char* name_of(ReduceOp operation);

}  // namespace trireme::comm
