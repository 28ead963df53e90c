// How the agents of a job hear of each other: every agent reports, one of them leads and publishes
// plans.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/membership/coordinator.h"
#include "trireme/launch/membership/plan.h"
#include "trireme/launch/membership/report.h"

namespace trireme::launch::inline internal {

// For one thread. Nothing here waits for the network.
class Line {
 public:
  virtual ~Line() = default;

  // Sends the report soon, and again and again until the next one, as a heartbeat.
  virtual void report(const HostReport& report) = 0;
  // The newest plan.
  virtual Plan plan() const = 0;
  // When the leader last answered: the moment at which the answered message was sent.
  virtual Clock::time_point last_contact() const = 0;
  // Why the line is broken for good; "" while it is not.
  virtual std::string problem() const = 0;
  // Readable when there may be a new plan, or on the leader a new report.
  virtual int descriptor() const = 0;
  // This host's address, as others reach it.
  virtual std::string own_address() const = 0;

  // Whether this agent leads. The rest is for it alone.
  virtual bool leads() const = 0;
  // All that ever reported, in the order in which they joined.
  virtual std::vector<SeenHost> hosts() const = 0;
  virtual void publish(const Plan& plan) = 0;
};

// Of a job with one agent, without a network.
std::unique_ptr<Line> make_local_line();

}  // namespace trireme::launch::inline internal
