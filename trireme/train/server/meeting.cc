#include "trireme/train/server/meeting.h"

#include <algorithm>

#include "trireme/comm/objects.h"

namespace trireme::train::inline internal {

Meeting meet(comm::Communicator& workers, int64_t step, int leave, bool counts) {
  Meeting meeting;
  const std::vector<int64_t> steps = comm::all_gather_numbers(workers, step);
  meeting.least_step = std::ranges::min(steps);
  const std::vector<int64_t> counted = comm::all_gather_numbers(workers, counts ? 1 : 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    meeting.sum_of_steps += counted[i] * steps[i];
    meeting.num_counted += counted[i];
  }
  meeting.leave = static_cast<int>(std::ranges::max(comm::all_gather_numbers(workers, leave)));
  return meeting;
}

}  // namespace trireme::train::inline internal
