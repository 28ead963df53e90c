// Many small tensors in one operation: packed back to back, with one call per dtype. On every
// transport the values are the same as with one call per tensor.
#pragma once

#include <vector>

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

}  // namespace trireme::comm
