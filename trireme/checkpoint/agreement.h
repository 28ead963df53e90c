// Ranks succeed together or fail together: what keeps one rank's full disk from hanging the others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

// Runs `produce` here and gives every rank's result to every rank. When it throws anywhere, all
// ranks throw the same CheckpointError: the first failing rank's reason, naming the rank.
// Comm:       one all-gather of the strings
// Collective: every rank of `world`
// Throws:     CheckpointError as said; CommError when a peer is lost (also out of `produce`)
std::vector<std::string> gather_or_throw(comm::Communicator& world,
                                         const std::function<std::string()>& produce);

// The same for work that has no result.
void run_or_throw(comm::Communicator& world, const std::function<void()>& work);

}  // namespace trireme::checkpoint
