// Ranks for tests: as threads of this process, or as processes that can be killed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace trireme::harness {

using RankFunction = std::function<void(comm::Communicator&)>;

// Runs `function` on `size` ranks as threads. The first failure is thrown again; its group goes
// with it, so that the other ranks fail too instead of waiting.
void run_ranks(int size, const RankFunction& function, const comm::GroupOptions& options = {});

// A process's end: exit code, or minus the signal that killed it.
using ExitStatus = int;

// Runs `function` on `size` processes over shared memory; none is left behind. A rank that returns
// exits with 0, one that throws prints what and exits with 1. Fork before the test uses several
// threads.
std::vector<ExitStatus> fork_ranks(int size, const RankFunction& function,
                                   const comm::GroupOptions& options = {});

// Runs `function(rank)` on `size` processes; none is left behind. As fork_ranks, but each makes its
// own group. A rank in which a gtest expectation failed exits with 1.
std::vector<ExitStatus> fork_processes(int size, const std::function<void(int rank)>& function);

// A group name that no other test uses.
std::string unique_job();

}  // namespace trireme::harness
