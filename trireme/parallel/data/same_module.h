// Makes all ranks begin with the same module: checks it, then copies rank 0's values to all.
#pragma once

#include <functional>
#include <string>

#include "trireme/comm/communicator.h"

namespace torch::nn {
class Module;
}

namespace trireme::parallel {

// The names of the parameters and buffers that matter; empty: all.
using Selects = std::function<bool(const std::string& name)>;

// Comm:       one digest per rank
// Collective: every rank of the group
// Throws:     ConfigError on every rank when one has another name, shape, dtype or trained
//             parameter
void check_same_module(const torch::nn::Module& module, comm::Communicator& group,
                       const Selects& selects = {});

// Comm: one broadcast per parameter or buffer
// Collective: every rank of the group
void broadcast_module(torch::nn::Module& module, comm::Communicator& group,
                      const Selects& selects = {});

}  // namespace trireme::parallel
