#include <sys/eventfd.h>

#include "trireme/base/file/descriptor.h"
#include "trireme/launch/agent/line.h"

namespace trireme::launch::inline internal {
namespace {

class LocalLine final : public Line {
 public:
  void report(const HostReport& report) override { newest_ = {report, Clock::now()}; }
  Plan plan() const override { return plan_; }
  Clock::time_point last_contact() const override { return Clock::now(); }
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

std::unique_ptr<Line> make_local_line() { return std::make_unique<LocalLine>(); }

}  // namespace trireme::launch::inline internal
