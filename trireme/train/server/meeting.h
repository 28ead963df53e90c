// Where workers that are not in the same step meet: at checkpoints, and at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::train::inline internal {

struct Meeting {
  int64_t least_step = 0;  // of the workers
  int64_t sum_of_steps = 0;
  int64_t num_counted = 0;  // workers in that sum
  int leave = 0;            // the largest of their reasons
};

// Comm:       24 bytes from each worker to all
// Collective: every worker; a worker that leaves comes at once, the others to their next meeting
// counts: whether this worker's steps count in the sum
Meeting meet(comm::Communicator& workers, int64_t step, int leave, bool counts = true);

}  // namespace trireme::train::inline internal
