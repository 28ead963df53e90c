// What a run with parameter servers cannot do.
#pragma once

#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// Throws: ConfigError, one line, when parallel.servers cannot be combined with another key or the
//         task, or leaves no worker, and when one of its own keys is set without it
void check_servers(const RunConfig& config, int num_ranks);

}  // namespace trireme::train::inline internal
