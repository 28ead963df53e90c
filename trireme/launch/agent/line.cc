#include "trireme/launch/agent/line.h"

#include <algorithm>
#include <ctime>

#include <sys/eventfd.h>

#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

class LocalLine final : public Line {
 public:
  void report(const HostReport& report) override { newest_ = {report, Clock::now()}; }
  // One thread, one host: what is published is known at once, and nothing can be late.
  Plan plan() const override { return plan_; }
  // No lease can lapse: nobody begins an epoch without this host.
  BootClock::time_point last_contact() const override { return BootClock::now(); }
  bool has_lapsed() const override { return false; }
  bool begin_anew() override { return true; }
  std::string problem() const override { return ""; }
  int descriptor() const override { return never_.get(); }
  std::string own_address() const override { return "127.0.0.1"; }
  bool leads() const override { return true; }
  std::vector<SeenHost> hosts() const override {
    if (newest_.report.id.empty()) return {};
    return {{newest_.report, Clock::now()}};  // the agent itself cannot be late
  }
  void publish(const Plan& plan) override { plan_ = plan; }

 private:
  const Descriptor never_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  SeenHost newest_;
  Plan plan_;
};

}  // namespace

BootClock::time_point BootClock::now() noexcept {
  // Not the steady clock, which stands still while a host is suspended: such a host would wake up
  // with most of its lease left, long after the others have begun without it.
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

void Lease::renew(BootClock::time_point sent, BootClock::time_point now) {
  // Looks before it renews. The thread that renews may be the first to run after a pause, and the
  // lapse would be forgotten before the agent's loop sees it.
  has_lapsed_ |= is_late(now);
  // The moment of sending, not of the answer: the leader counts from when it got the message, which
  // is later, so the agent's lease ends first.
  last_contact_ = std::max(last_contact_, sent);
}

bool Lease::has_lapsed(BootClock::time_point now) const { return has_lapsed_ || is_late(now); }

bool Lease::begin_anew(BootClock::time_point now) {
  if (!is_late(now)) has_lapsed_ = false;
  return !is_late(now);
}

std::unique_ptr<Line> make_local_line() { return std::make_unique<LocalLine>(); }

}  // namespace trireme::launch
