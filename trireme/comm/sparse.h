// Sparse tensors between ranks, as gradients of embeddings are.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

struct SparseAllReduce {
  WorkPtr work;
  std::function<void()> finish;  // call once when `work` is done: puts the result into the tensor
};

// data: COO, the same shape and sparse dims everywhere, any number of values; in place. Elements
// are summed in rank order, values given twice for one place first. The call itself waits for its
// peers.
// Comm:       8 bytes a dim and rank, then the others' indices and values
// Collective: every rank
// Throws:     ConfigError unless the operation is sum or average, or when shapes differ
SparseAllReduce all_reduce_sparse(Communicator& group, const at::Tensor& data, Options options);

}  // namespace trireme::comm
