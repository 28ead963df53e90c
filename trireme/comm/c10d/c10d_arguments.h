// What torch.distributed passes, checked and in the words of comm::Communicator. Communicates
// nothing.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Throws: ConfigError unless the tensor's own memory can be sent: dense, on the CPU, not a lazy
// conjugate or negative
void check_sendable(const char* operation, const at::Tensor& tensor);
void check_sendable(const char* operation, const std::vector<at::Tensor>& tensors);
// The one tensor of a list; c10d passes lists for the sake of several GPUs a process.
// Throws: ConfigError unless there is exactly one, and it is sendable
const at::Tensor& only_tensor(const char* operation, const std::vector<at::Tensor>& tensors);
// The one list of a list, with one sendable tensor for each of `size` ranks.
const std::vector<at::Tensor>& only_list(const char* operation,
                                         const std::vector<std::vector<at::Tensor>>& lists,
                                         int size);

// A reduction of c10d's; PREMUL_SUM is a sum of inputs that were multiplied by `factor`.
struct Reduction {
  ReduceOp operation = ReduceOp::kSum;
  std::optional<at::Tensor> factor;  // one element
  // The tensor itself, or its product with the factor.
  at::Tensor prepare(const at::Tensor& tensor) const;
};
// Throws: ConfigError for what is not a reduction
Reduction reduction_of(const c10d::ReduceOp& op);

// Elements of each of `parts` blocks of a buffer that is cut along its first dim.
// sizes: rows of each block; empty: equal blocks.
// Throws: ConfigError unless they add up to the buffer's rows
std::vector<int64_t> block_elements(const char* operation, const at::Tensor& buffer, int parts,
                                    std::span<const int64_t> sizes = {});

// An output buffer as blocks that follow each other in memory; `commit`, when set, brings the
// values into a buffer that is not contiguous.
struct OutputBlocks {
  OutputBlocks(const at::Tensor& buffer, std::span<const int64_t> elements);
  std::vector<at::Tensor> blocks;
  std::function<void()> commit;
};
std::vector<at::Tensor> input_blocks(const at::Tensor& buffer, std::span<const int64_t> elements);

}  // namespace trireme::comm
