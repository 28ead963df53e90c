// Ranks as threads of one process: tests, debuggers, sanitizers, small machines.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace trireme::comm {

// One communicator per rank. Use each on its own thread.
std::vector<std::unique_ptr<Communicator>> make_thread_group(int size,
                                                             const GroupOptions& options = {});

}  // namespace trireme::comm
