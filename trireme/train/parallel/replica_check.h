// Replicas must hold the same bits. A rank that differs has computed or stored something wrong:
// silent data corruption, a broken memory module, a bug.
#pragma once

#include <span>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::train {

class ParallelModel;

using NamedTensor = std::pair<std::string, at::Tensor>;

// Compares checksums of `tensors`, which every rank of the group should hold alike. world_rank:
// this rank as errors name it.
// Comm:       16 bytes a tensor and a few more all-gathered
// Collective: every rank of the group, with the same names
// Throws:     Error on every rank when one differs from the others: its rank, the first tensor, and
//             what to do
void check_replicas(std::span<const NamedTensor> tensors, comm::Communicator& group,
                    int world_rank);

// All that ranks of a mesh should hold alike: whole parameters on all data ranks, or with ZeRO-3
// (`sharded`) each part on its replicas; and without it what the tensor axis does not split on its
// ranks.
// Collective: every rank of the model's world
void check_replicas(const ParallelModel& model, bool sharded);

// What ranks of a tensor group compute alike, as their norms' gradients, has the same bits on all
// of them with one number of threads: libtorch's sums depend on it.
// Comm:       8 bytes all-gathered
// Collective: every rank of the group
// Throws:     ConfigError on every rank when the numbers differ
void check_threads(int num_threads, comm::Communicator& tensor_group);

// train.reproducible sums gradients over the data ranks in an order of its own; what the tensor
// ranks sum must have one order too, wherever a layout places them. Two terms have but one order.
// Throws:     ConfigError on every rank when the group promises none
void check_sum_order(const comm::Communicator& tensor_group);

}  // namespace trireme::train
