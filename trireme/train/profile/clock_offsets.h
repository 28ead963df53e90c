// How far the ranks' monotonic clocks are from rank 0's. Ranks of one host share a clock; between
// hosts it is measured by messages there and back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::train {

struct LocalClock {
  std::string host;                 // equal on ranks that share the clock: a boot id
  std::function<int64_t()> now_ns;  // monotonic
};

// On rank 0: by rank, that rank's clock minus rank 0's in nanoseconds, wrong by at most half of the
// shortest of 8 round trips. Empty elsewhere.
// Comm:       every rank's host name to all; 16 messages of 8 bytes for each host but rank 0's
// Collective: every rank of `world`
std::vector<int64_t> clock_offsets(comm::Communicator& world, const LocalClock& clock);

}  // namespace trireme::train
