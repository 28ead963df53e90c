// Meetings of workers that are in different steps: at checkpoints and at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::train::inline internal {

struct Meeting {
  int64_t least_step = 0;  // of the workers
  int64_t sum_of_steps = 0;
  int64_t num_counted = 0;  // workers in that sum
  int leave = 0;            // the largest of the workers' reasons to leave
};

// Comm:       24 bytes from each worker to all
// Collective: every worker. A worker that leaves calls it at once; the others call it at their next
//             meeting.
// counts: whether the sum includes this worker's steps
Meeting meet(comm::Communicator& workers, int64_t step, int leave, bool counts = true);

}  // namespace trireme::train::inline internal
