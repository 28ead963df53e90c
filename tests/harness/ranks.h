// Ranks for tests: threads of this process, or processes that can be killed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace trireme::harness {

using RankFunction = std::function<void(comm::Communicator&)>;

// Runs `function` on `size` ranks, each a thread, as comm::run_thread_group() does: the failure of
// one rank ends all of them and is rethrown here.
void run_ranks(int size, const RankFunction& function, const comm::GroupOptions& options = {});

// How a process ended: its exit code, or minus the signal that killed it.
using ExitStatus = int;

// Runs `function` on `size` processes over shared memory. No process is left behind. A rank that
// returns exits with 0. A rank that throws prints the error and exits with 1. Fork before the test
// uses several threads.
std::vector<ExitStatus> fork_ranks(int size, const RankFunction& function,
                                   const comm::GroupOptions& options = {});

// Runs `function(rank)` on `size` processes, as fork_ranks() does, but each makes its own group. In
// both, a rank with a failed gtest expectation exits with 1.
std::vector<ExitStatus> fork_processes(int size, const std::function<void(int rank)>& function);

// A group name that no other test uses.
std::string unique_job();

}  // namespace trireme::harness
