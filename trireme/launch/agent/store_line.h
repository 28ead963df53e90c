// The line of agents on several hosts: over a store that the leader serves
// (comm/rendezvous/meeting.h).
#pragma once

#include <chrono>
#include <memory>

#include "trireme/comm/rendezvous/meeting.h"
#include "trireme/launch/agent/line.h"

namespace trireme::launch::inline internal {

struct StoreLineOptions {
  comm::MeetingOptions meeting{};
  // true, false: this agent leads, or does not. None: it leads if it can serve the address.
  std::optional<bool> leads{};
  std::chrono::milliseconds beat{200};  // between reports
};

// Waits for the leader. Then threads of its own send and receive.
// Comm:   per beat and host a report of some 300 bytes per worker to the leader, and one back
// Throws: as Meeting::serve() and join()
std::unique_ptr<Line> make_store_line(const StoreLineOptions& options);

}  // namespace trireme::launch::inline internal
