// Checks that replicas hold the same bits. A rank that differs has computed or stored something
// wrong: silent data corruption, a broken memory module, or a bug.
#pragma once

#include <span>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::train {

class ParallelModel;

using NamedTensor = std::pair<std::string, at::Tensor>;

// Compares checksums of `tensors`, which must be equal on every rank of the group. world_rank: this
// rank's name in errors.
// Comm:       16 bytes per tensor and a few more all-gathered; none without tensors
// Collective: every rank of the group, with the same names
// Throws:     Error on every rank when one differs from the others, with its rank, the first
//             tensor, and what to do
void check_replicas(std::span<const NamedTensor> tensors, comm::Communicator& group,
                    int world_rank);

// Checks everything that must be equal on ranks of a mesh: buffers and whole parameters on all data
// ranks, or with ZeRO-3 (`sharded`) each parameter's part on its replicas. Without ZeRO-3 also
// compares the parameters that the tensor axis does not split over its ranks.
// Collective: every rank of the model's world
void check_replicas(const ParallelModel& model, bool sharded);

// Checks that all ranks use the same number of threads, on which libtorch's sums depend. Otherwise
// values that every rank of a tensor group computes, such as their norms' gradients, could differ
// in bits.
// Comm:       8 bytes all-gathered
// Collective: every rank of the group
// Throws:     ConfigError on every rank when the numbers differ
void check_threads(int num_threads, comm::Communicator& tensor_group);

// train.reproducible sums gradients over the data ranks in its own order. Sums over the tensor
// ranks must have a fixed order too, wherever a layout places the ranks. A sum of two terms has
// only one order.
// Throws: ConfigError on every rank when the group promises no order
void check_sum_order(const comm::Communicator& tensor_group);

}  // namespace trireme::train
