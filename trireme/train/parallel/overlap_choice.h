// Whether tensor parallelism hides its communication: set, or found out in the first steps of a
// run, which try both ways in turns. Both compute the same bits, so the choice changes the time
// alone. Where it does, it is measured how much it hides.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/parallel_config.h"
#include "trireme/train/parallel/hidden_communication.h"

namespace trireme::train {

// What a step's layers tell.
struct LayerTimes {
  Span window{};                        // when they ran, by the monotonic clock
  std::chrono::nanoseconds waiting{0};  // for the tensor group
};

// Thread safety: one thread drives it.
class OverlapChoice {
 public:
  using Clock = std::function<int64_t()>;  // nanoseconds

  // `world` outlives it.
  OverlapChoice(AsyncTensor mode, comm::Communicator& world, HiddenCommunication hidden,
                Clock clock = monotonic_ns);

  // What layers read: constant during a step.
  std::shared_ptr<const bool> flag() const { return flag_; }

  void begin_step();
  // "decided asynchronous tensor parallel on: 31.2 ms a step with it, 33.0 without; it hides 63 %
  // of its communication" in the step that decides, or of kOn has been measured. Without the last
  // part where calls are not recorded.
  // Comm:       24 bytes from every rank to all, while it tries or measures
  // Collective: every rank of the world
  std::optional<std::string> end_step(const LayerTimes& layers);

 private:
  bool measures() const;
  std::string describe_hidden(const std::vector<double>& all) const;

  comm::Communicator& world_;
  HiddenCommunication hidden_;
  std::shared_ptr<bool> flag_;
  bool is_decided_;
  int last_step_ = 0;                           // that tries or measures
  int step_ = 0;                                // of this process
  std::array<std::vector<double>, 2> seconds_;  // off, on: of the slowest rank
  Clock clock_;
  int64_t start_ns_ = 0;
};

}  // namespace trireme::train
