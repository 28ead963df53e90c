// Decides whether tensor parallelism hides its communication: by config, or by trying both ways in
// turn in the first steps. Both compute the same bits, so the choice only changes the time. When it
// does hide communication, measures how much.
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

namespace trireme::train::inline internal {

// The report of a step's layers.
struct LayerTimes {
  Span window{};                        // when they ran, by the monotonic clock
  std::chrono::nanoseconds waiting{0};  // for the tensor group
};

// Thread safety: one thread drives it.
class OverlapChoice {
 public:
  using Clock = std::function<int64_t()>;  // nanoseconds

  // `world` must outlive it.
  OverlapChoice(AsyncTensor mode, comm::Communicator& world, HiddenCommunication hidden,
                Clock clock = monotonic_ns);

  // Read by the layers. Constant during a step.
  std::shared_ptr<const bool> flag() const { return flag_; }

  void begin_step();
  // Returns "decided asynchronous tensor parallel on: 31.2 ms per step with it, 33.0 without; it
  // hides 63 % of its communication" in the step that decides, or that completes the measurement of
  // kOn. Omits the last part if calls are not recorded.
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
  int last_step_ = 0;                           // the last step that tries or measures
  int step_ = 0;                                // of this process
  std::array<std::vector<double>, 2> seconds_;  // off, on: of the slowest rank
  Clock clock_;
  int64_t start_ns_ = 0;
};

}  // namespace trireme::train::inline internal
