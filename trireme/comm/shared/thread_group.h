// Ranks as threads of one process: tests, debuggers, sanitizers, small machines.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace trireme::comm {

// One communicator per rank. Use each on its own thread.
std::vector<std::unique_ptr<Communicator>> make_thread_group(int size,
                                                             const GroupOptions& options = {});

// Runs `function` on `size` ranks, each a thread that ends with it. Rethrows the first failure,
// and a CommError only when there is no other. A rank that fails destroys its group, so the other
// ranks fail too instead of waiting.
void run_thread_group(int size, const std::function<void(Communicator&)>& function,
                      const GroupOptions& options = {});

}  // namespace trireme::comm
