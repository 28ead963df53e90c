// The offsets of the ranks' monotonic clocks from rank 0's. Ranks of one host share a clock.
// Between hosts the offset is measured by round trips.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::train::inline internal {

struct LocalClock {
  std::string host;                 // a boot id; equal on ranks that share the clock
  std::function<int64_t()> now_ns;  // monotonic
};

// On rank 0: for each rank, its clock minus rank 0's in nanoseconds. The error is at most half of
// the shortest of 8 round trips. Empty on other ranks.
// Comm:       every rank's host name to all; 16 messages of 8 bytes for each host but rank 0's
// Collective: every rank of `world`
std::vector<int64_t> clock_offsets(comm::Communicator& world, const LocalClock& clock);

}  // namespace trireme::train::inline internal
