// All ranks of a mesh in one process, one at a time: rank 0 runs until it must wait for another,
// then the next one runs. A collective is done by its last rank, on everyone's tensors, its sums in
// rank order: the bits are those of ranks that really communicate. The order of turns depends on
// the program only, so a run repeats exactly, under a debugger too.
#pragma once

#include <functional>

#include "trireme/comm/communicator.h"

namespace trireme::spmd {

// Runs `function` for each rank of a world of `size`. The groups that it splits off are emulated
// too. Memory: that of all ranks.
// Throws: what a rank throws first; CommError, in place of a hang, when all ranks wait or call
//         different operations, with each one's call; ConfigError for messages between two ranks,
//         which are not emulated
void emulate_ranks(int size, const std::function<void(comm::Communicator& world)>& function);

}  // namespace trireme::spmd
