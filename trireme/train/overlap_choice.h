// Whether tensor parallelism hides its communication: set, or found out in the first steps of a run,
// which try both ways in turns. Both compute the same bits, so the choice changes the time alone.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::train {

// Thread safety: one thread drives it.
class OverlapChoice {
 public:
  // mode: "on", "off" or "auto". `world` outlives it.
  OverlapChoice(const std::string& mode, comm::Communicator& world);

  // What layers read: constant during a step.
  std::shared_ptr<const bool> flag() const { return flag_; }

  void begin_step();
  // "asynchronous tensor parallel on: 31.2 ms a step with it, 33.0 without" in the step that decides.
  // Comm:       8 bytes from every rank to all, while it tries
  // Collective: every rank of the world
  std::optional<std::string> end_step();

 private:
  using Clock = std::chrono::steady_clock;

  comm::Communicator& world_;
  std::shared_ptr<bool> flag_;
  bool is_decided_;
  int step_ = 0;                                // of this process
  std::array<std::vector<double>, 2> seconds_;  // off, on: of the slowest rank
  Clock::time_point start_;
};

}  // namespace trireme::train
