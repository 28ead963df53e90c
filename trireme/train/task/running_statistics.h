// Torch's batch and instance norms that keep running statistics. Under data parallelism these would
// be the statistics of one rank's samples.
#pragma once

#include <optional>
#include <string>

namespace torch::nn {
class Module;
}

namespace trireme::train {

// The name of the first such norm in `module`, which has the name `name`; empty: there is none.
std::optional<std::string> norm_with_own_statistics(const torch::nn::Module& module,
                                                    const std::string& name);

}  // namespace trireme::train
