// Communication between the agents of a job: every agent reports, and one of them leads and
// publishes plans. An agent may continue without an answer from the leader for the time of its
// lease.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/membership/coordinator.h"
#include "trireme/launch/membership/rank_plan.h"
#include "trireme/launch/membership/report.h"

namespace trireme::launch {

// CLOCK_BOOTTIME, which goes on while the host is suspended.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
};

// Whoever renews it also finds out that it had lapsed before, so a pause of the whole process is
// not missed, whichever thread runs first after it. Not thread safe.
class Lease {
 public:
  Lease(std::chrono::milliseconds length, BootClock::time_point now)
      : length_(length), last_contact_(now) {}

  // The leader has answered a message that was sent at `sent`.
  void renew(BootClock::time_point sent, BootClock::time_point now);
  // Whether there was no answer for longer than the lease, at any time since begin_anew().
  bool has_lapsed(BootClock::time_point now) const;
  // Forgets that it had lapsed, if the leader answers again. Returns whether it does.
  bool begin_anew(BootClock::time_point now);
  BootClock::time_point last_contact() const { return last_contact_; }

 private:
  bool is_late(BootClock::time_point now) const { return now - last_contact_ > length_; }

  std::chrono::milliseconds length_;
  BootClock::time_point last_contact_;
  bool has_lapsed_ = false;
};

// For one thread. Nothing here waits for the network.
class Line {
 public:
  virtual ~Line() = default;

  // Sends the report soon, and again and again until the next one, as a heartbeat.
  virtual void report(const HostReport& report) = 0;
  // The newest plan.
  virtual Plan plan() const = 0;
  // When the leader last answered: the moment at which the answered message was sent.
  virtual BootClock::time_point last_contact() const = 0;
  // Whether the leader was silent for longer than the lease, at any time since begin_anew().
  virtual bool has_lapsed() const = 0;
  // Once this host's workers have ended: whether the leader answers again. Then the lease begins
  // anew.
  virtual bool begin_anew() = 0;
  // Why the line is broken for good; "" while it is not.
  virtual std::string problem() const = 0;
  // Readable when there may be a new plan, or on the leader a new report.
  virtual int descriptor() const = 0;
  // This host's address, as others reach it.
  virtual std::string own_address() const = 0;

  // Whether this agent leads. The methods below are for the leader.
  virtual bool leads() const = 0;
  // All hosts that ever reported, in the order in which they joined. This host counts as just seen:
  // the leader cannot be late for itself.
  virtual std::vector<SeenHost> hosts() const = 0;
  virtual void publish(const Plan& plan) = 0;
};

// Makes the line of a job with one agent, without a network.
std::unique_ptr<Line> make_local_line();

}  // namespace trireme::launch
