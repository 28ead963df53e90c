// Sums the losses and metrics of all ranks. The bits depend only on the batch, not on which rank
// computed which microbatch. If several ranks of a mesh hold the same loss, it counts once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"

namespace trireme::train {

// The outputs of the last stage: for each of `count` microbatches, the loss and the metrics' states
// (`width` numbers). Zeros on ranks without that stage.
// outputs: by name, one tensor per microbatch
// Throws:  ConfigError when the states have another number of elements
std::vector<double> sums_of_outputs(const std::map<std::string, std::vector<at::Tensor>>& outputs,
                                    size_t count, size_t width);

// Every rank's numbers, in rank order. Every rank must have the same number of them.
// Comm:       8 bytes per number from every rank to all
// Collective: every rank of `group`
std::vector<double> gather(comm::Communicator& group, std::vector<double> mine);

// Sums over all microbatches of all data ranks, each in one binary tree. mine: `width` numbers per
// microbatch of this rank; the result has as many. Only ranks at `pipeline_rank` count. Their
// numbers are added over the context axis. On the tensor axis, where all ranks have the same
// numbers, only the first counts. in_turn: the ranks have read microbatches in turn, so that
// microbatch j of all ranks comes before microbatch j + 1 of any.
// Comm:       8 bytes per number from every rank to all
// Collective: every rank of the world
std::vector<double> sums_over_batches(const mesh::DeviceMesh& mesh, int pipeline_rank,
                                      std::vector<double> mine, size_t width, bool in_turn = false);
// The same for one number per microbatch.
double sum_over_batches(const mesh::DeviceMesh& mesh, int pipeline_rank, std::vector<double> mine);

}  // namespace trireme::train
