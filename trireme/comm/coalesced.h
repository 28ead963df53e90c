// Many small tensors in one operation: packed back to back, one call for each dtype. The values are
// those of one call a tensor, on every transport.
#pragma once

#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// data: any number of tensors, the same shapes everywhere; in place. The tensors hold the result
// after the returned work's wait().
// Comm:       2(p-1)/p * n bytes, n the sum of all
// Collective: every rank
[[nodiscard]] WorkPtr all_reduce_coalesced(Communicator& group, std::vector<at::Tensor> data,
                                           Options options = {});

// outputs[i][r]: rank r's inputs[i]; shapes may differ by i and by r, as in all_gather.
// Comm:       the sum of the others' inputs
// Collective: every rank
[[nodiscard]] WorkPtr all_gather_coalesced(Communicator& group,
                                           std::vector<std::vector<at::Tensor>> outputs,
                                           std::vector<at::Tensor> inputs, Options options = {});

// inputs[i][r]: what goes into rank r's outputs[i]; shapes may differ by i and by r.
// Comm:       (p-1)/p * n bytes, n the sum of all inputs
// Collective: every rank
[[nodiscard]] WorkPtr reduce_scatter_coalesced(Communicator& group, std::vector<at::Tensor> outputs,
                                               std::vector<std::vector<at::Tensor>> inputs,
                                               Options options = {});

}  // namespace trireme::comm
