// Describes the call a rank is in, for its peers to compare and for people to read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

struct Call {
  const char* operation = "";  // a literal; its text is sent to peers
  int dtype = -1;              // c10::ScalarType; -1: none
  int reduce_op = -1;          // ReduceOp; -1: none
  int root = -1;
  int64_t elements = -1;     // -1: may differ by rank
  uint64_t block_sizes = 0;  // hash of the sizes that all ranks must agree on; 0: none
};

// "all_reduce(Float, 3 elements, sum)"
std::string to_string(const Call& call);

// Throws: ConfigError unless `tensor` is dense and on the CPU
Call call_of(const char* operation, const at::Tensor& tensor, int64_t elements = -1, int root = -1);
// Throws: ConfigError also when the dtype does not support `reduce_op`
Call reduce_call(const char* operation, const at::Tensor& tensor, int64_t elements,
                 ReduceOp reduce_op, int root = -1);
// The same call on `tensors`, one block per rank. All ranks must agree on each block's size.
Call in_blocks(Call call, const std::vector<at::Tensor>& tensors);

}  // namespace trireme::comm
