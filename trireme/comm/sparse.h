// Reduces sparse tensors, such as gradients of embeddings, over ranks.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

struct SparseAllReduce {
  WorkPtr work;
  std::function<void()> finish;  // call once when `work` is done: copies the result into the tensor
};

// Reduces a COO tensor in place. Shape and sparse dims must be the same on every rank; the number
// of values may differ. First sums duplicate indices, then elements in rank order. The call itself
// waits for its peers.
// Comm:       8 bytes per dim from each rank, and 16 more; then the others' indices and values
// Collective: every rank
// Throws:     ConfigError unless the operation is sum or average, or when shapes differ
SparseAllReduce all_reduce_sparse(Communicator& group, const at::Tensor& data, Options options);

}  // namespace trireme::comm
