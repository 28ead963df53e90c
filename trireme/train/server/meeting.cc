#include "trireme/train/server/meeting.h"

#include <algorithm>

#include "trireme/comm/objects.h"

namespace trireme::train::inline internal {

Meeting meet(comm::Communicator& workers, int64_t step, int leave) {
  Meeting meeting;
  const std::vector<int64_t> steps = comm::all_gather_numbers(workers, step);
  meeting.least_step = std::ranges::min(steps);
  for (const int64_t each : steps) meeting.sum_of_steps += each;
  meeting.leave = static_cast<int>(std::ranges::max(comm::all_gather_numbers(workers, leave)));
  return meeting;
}

}  // namespace trireme::train::inline internal
