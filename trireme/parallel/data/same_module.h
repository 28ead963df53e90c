// All ranks begin with the same module: checked, then rank 0's values given to all.
#pragma once

#include "trireme/comm/communicator.h"

namespace torch::nn {
class Module;
}

namespace trireme::parallel {

// Comm:       a digest a rank
// Collective: every rank of the group
// Throws:     ConfigError on every rank when one has another name, shape, dtype or trained
//             parameter
void check_same_module(const torch::nn::Module& module, comm::Communicator& group);

// Comm:       one broadcast a parameter or buffer
// Collective: every rank of the group
void broadcast_module(torch::nn::Module& module, comm::Communicator& group);

}  // namespace trireme::parallel
