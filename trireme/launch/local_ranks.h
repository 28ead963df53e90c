// Starts N ranks of a program on this host and watches them. When one fails the others stop.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {

// The rank that failed first. A rank that only lost its peers (exit code 3) does not count if
// another one failed.
struct RankExit {
  int rank = -1;        // -1: all succeeded
  int code = 0;         // exit code; -1 when a signal killed it
  int signal = 0;       // that signal
  std::string message;  // what the rank wrote to the descriptor TRIREME_ERROR_FD
};

struct LocalRanksOptions {
  int num_ranks = 1;
  std::vector<std::string> command;  // program and arguments, the same for every rank
  // How long the other ranks may take to stop after one has failed, before SIGKILL.
  std::chrono::milliseconds grace{3000};
  // The number of last ranks that may fail while the others continue, which hold copies of their
  // data. This applies once a rank has written a byte to the descriptor TRIREME_READY_FD, which it
  // does when the copies exist.
  int num_expendable = 0;
  // Called when one of these has failed, unless the ranks are stopping. Null: nobody is told.
  std::function<void(const RankExit& exit)> on_expended = nullptr;
};

// Runs the command num_ranks times with these environment variables: torchrun's (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT); TRIREME_JOB and TRIREME_LAUNCH (a random
// name that suffices for the ranks to meet); TRIREME_STORE (a file to meet over, unless MASTER_ADDR
// is set); TRIREME_ERROR_FD (where a rank may write one line that says why it failed);
// TRIREME_READY_FD (see num_expendable); and OMP_NUM_THREADS = cores / ranks unless it is set.
// Returns when all ranks have ended.
// Passes SIGTERM and SIGINT on to the ranks, and SIGHUP as SIGTERM, unless they are ignored. A rank
// that dies of such a signal before it has a handler has not failed. When this process dies, even
// by SIGKILL, the kernel kills the ranks.
// A program that cannot be executed counts as a rank that exits with 127.
// Throws: Error when no process can be made
RankExit run_local_ranks(const LocalRanksOptions& options);

// The rank's own message, or "rank 1 was killed by signal 11 (Segmentation fault)", "rank 0 exited
// with code 2".
std::string describe(const RankExit& exit);

}  // namespace trireme::launch
