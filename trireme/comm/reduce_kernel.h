// The arithmetic of a reduction: outs[i] = op over ranks of inputs[r][i], always in rank order and
// independent of the block size. 16-bit floats accumulate in fp32 and round once. Integers wrap
// around; their average is that sum divided towards zero, as in NCCL.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Throws: ConfigError when `operation` is not defined on `dtype` (bitwise on floats, average on
//         bools)
void check_reducible(c10::ScalarType dtype, ReduceOp operation);

// inputs: one pointer per rank, each to `count` elements. Writes the result to each of `outs`,
// which may also be inputs.
void reduce_in_rank_order(std::span<void* const> outs, std::span<const void* const> inputs,
                          int64_t count, c10::ScalarType dtype, ReduceOp operation);

// Divides the sum in place to get an average: integers towards zero, complex numbers part by part.
// Takes what a sum is kept in: integers, floats, doubles and complex numbers.
void divide_elements(void* data, int64_t count, c10::ScalarType dtype, int divisor);

const char* name_of(ReduceOp operation);

}  // namespace trireme::comm
