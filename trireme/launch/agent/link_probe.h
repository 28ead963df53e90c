// Finds out which other hosts this one reaches, when the leader asks (membership/report.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/launch/agent/line.h"
#include "trireme/launch/membership/rank_plan.h"
#include "trireme/launch/process/child.h"

namespace trireme::launch {

// One thread uses it. Never waits: threads of its own connect.
class LinkProbe {
 public:
  // Listens on a free port of `address`, for the others' probes. On none if that fails.
  explicit LinkProbe(std::string address, std::chrono::milliseconds patience = kPatience);
  LinkProbe() = default;  // for a job on one host

  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Answers the plan's question, unless it has been heard before or is not for the host `id`:
  // connects to each other host.
  // Comm: a TCP connection to each, without data
  void answer(const Plan& plan, const std::string& id);
  struct Answer {
    int64_t number = 0;  // 0: none yet
    std::vector<Unreached> unreached{};
  };
  // The newest. Also takes what has connected here off the kernel's queue.
  Answer poll();

 private:
  static constexpr std::chrono::milliseconds kPatience{2000};  // for one host
  struct State;

  std::string address_;
  int port_ = 0;
  std::chrono::milliseconds patience_ = kPatience;
  std::vector<Descriptor> listeners_;
  int64_t number_ = 0;
  std::shared_ptr<State> state_;  // of the threads, which may outlive this
};

// Between the addresses that ranks use: that of GLOO_SOCKET_IFNAME in their environment, else the
// agent's own.
LinkProbe probe_between_ranks(const Environment& environment, const Line& line);

}  // namespace trireme::launch
