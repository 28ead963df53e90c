// Operations on tensors that are packed first: many small ones in one call per dtype, and sparse
// ones. On every transport the values are the same as with one call per tensor.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Reduces any number of tensors in place. Their shapes must be the same on every rank. The tensors
// hold the result after the returned work's wait().
// Comm:       2(p-1)/p * n bytes, n the total size
// Collective: every rank
[[nodiscard]] WorkPtr all_reduce_coalesced(Communicator& group, std::vector<at::Tensor> data,
                                           Options options = {});

// outputs[i][r]: rank r's inputs[i]; shapes may differ by i and by r, as in all_gather.
// Comm:       the sum of the others' inputs
// Collective: every rank
[[nodiscard]] WorkPtr all_gather_coalesced(Communicator& group,
                                           std::vector<std::vector<at::Tensor>> outputs,
                                           std::vector<at::Tensor> inputs, Options options = {});

// inputs[i][r]: this rank's contribution to rank r's outputs[i]; shapes may differ by i and by r.
// Comm:       (p-1)/p * n bytes, n the total size of the inputs
// Collective: every rank
[[nodiscard]] WorkPtr reduce_scatter_coalesced(Communicator& group, std::vector<at::Tensor> outputs,
                                               std::vector<std::vector<at::Tensor>> inputs,
                                               Options options = {});

// A reduction of a sparse tensor, such as the gradient of an embedding, under way.
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
