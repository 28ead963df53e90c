// Checks what torch.distributed passes and translates it for comm::Communicator. Never
// communicates.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Throws: ConfigError unless the tensor's own memory can be sent: dense, on the CPU, not lazily
//         conjugated or negated
void check_sendable(const char* operation, const at::Tensor& tensor);
void check_sendable(const char* operation, const std::vector<at::Tensor>& tensors);
// The only tensor of a list. c10d passes lists because a process may have several GPUs.
// Throws: ConfigError unless there is exactly one, and it is sendable
const at::Tensor& only_tensor(const char* operation, const std::vector<at::Tensor>& tensors);
// The only list of a list, with one sendable tensor for each of `size` ranks.
const std::vector<at::Tensor>& only_list(const char* operation,
                                         const std::vector<std::vector<at::Tensor>>& lists,
                                         int size);

// A reduction of c10d. PREMUL_SUM is a sum of inputs that were multiplied by `factor`.
struct Reduction {
  ReduceOp operation = ReduceOp::kSum;
  std::optional<at::Tensor> factor;  // one element
  // The tensor itself, or its product with the factor.
  at::Tensor prepare(const at::Tensor& tensor) const;
};
// Throws: ConfigError when `op` is not a reduction
Reduction reduction_of(const c10d::ReduceOp& op);

// The number of elements of each of `parts` blocks of a buffer that is cut along its first dim.
// sizes: rows of each block; empty: equal blocks.
// Throws: ConfigError unless they add up to the buffer's rows
std::vector<int64_t> block_elements(const char* operation, const at::Tensor& buffer, int parts,
                                    std::span<const int64_t> sizes = {});

// An output buffer as consecutive blocks. `commit`, when set, copies the values into a buffer that
// is not contiguous.
struct OutputBlocks {
  OutputBlocks(const at::Tensor& buffer, std::span<const int64_t> elements);
  std::vector<at::Tensor> blocks;
  std::function<void()> commit;
};
std::vector<at::Tensor> input_blocks(const at::Tensor& buffer, std::span<const int64_t> elements);

}  // namespace trireme::comm
