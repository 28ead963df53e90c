// A group of the ranks of a host, if they can read each other's memory.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint::inline internal {

// The ranks with the same color. Null when it is negative, when there is one, and when they do not
// share memory, as over gloo and MPI. They try it out: each looks whether it sees what the first
// one writes. So neither the transport's name nor its wrappers count.
// Comm:       a split; 64 KiB from the first rank to each other one
// Collective: every rank of `world`
std::unique_ptr<comm::Communicator> split_by_memory(comm::Communicator& world, int color);

}  // namespace trireme::checkpoint::inline internal
