// The line of agents on several hosts: over a store that the leader serves
// (comm/rendezvous/meeting.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "trireme/comm/cancellation.h"
#include "trireme/comm/rendezvous/meeting.h"
#include "trireme/launch/agent/line.h"

namespace trireme::launch {

struct AgentOptions;

struct StoreLineOptions {
  comm::MeetingOptions meeting{};
  // true, false: this agent leads, or does not. None: it leads if it can serve the address.
  std::optional<bool> leads{};
  std::chrono::milliseconds beat{200};  // between reports
  std::chrono::milliseconds lease{3000};
  // Called whenever the leader has answered: while the line is made, and then in a thread of its
  // own. Never on the leader: no epoch begins without it, so its workers may outlive a pause of
  // their agent.
  std::function<void()> on_answer{};
};

// Waits for the leader. Then threads of its own send and receive.
// Comm:   per beat and host a report of some 300 bytes per worker to the leader, and one back
// Throws: as Meeting::serve() and join()
std::unique_ptr<Line> make_store_line(const StoreLineOptions& options);

// The line of an agent with these options: over a store where it has an endpoint.
// timeout: to wait for the leader
std::unique_ptr<Line> make_line(const AgentOptions& options, std::optional<bool> leads,
                                std::chrono::milliseconds timeout, std::function<void()> on_answer,
                                const std::shared_ptr<comm::Cancellation>& cancellation);

}  // namespace trireme::launch
