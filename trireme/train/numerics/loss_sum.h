// Losses of all ranks in one sum whose bits depend on the batch alone, not on who computed which
// microbatch. On a mesh some ranks hold the same loss, and it counts once.
#pragma once

#include <span>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"

namespace trireme::train {

// Every rank's numbers, in rank order; as many on each.
// Comm:       8 bytes a number from every rank to all
// Collective: every rank of `group`
std::vector<double> gather(comm::Communicator& group, std::vector<double> mine);

// mine: one number a microbatch of this rank. The sum over all microbatches of all data ranks,
// taken in one binary tree: of the ranks at `pipeline_rank`, those of the context axis added up,
// and of those of the tensor axis, which have the same numbers, the first.
// Comm:       8 bytes a number from every rank to all
// Collective: every rank of the world
double sum_over_batches(const mesh::DeviceMesh& mesh, int pipeline_rank, std::vector<double> mine);

}  // namespace trireme::train
