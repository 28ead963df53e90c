// What rank 0 alone looks up or decides, for all ranks.
#pragma once

#include <functional>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::train {

// Runs `produce` on rank 0 and returns its text on every rank.
// Comm:       8 bytes, then the text to all
// Collective: every rank of `world`
// Throws:     on every rank what `produce` threw, as ConfigError, CheckpointError or else Error;
//             CommError when a peer is lost
std::string from_root(comm::Communicator& world, const std::function<std::string()>& produce);

}  // namespace trireme::train
