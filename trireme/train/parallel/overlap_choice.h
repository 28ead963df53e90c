// Decides whether tensor parallelism hides its communication: by config, or by trying both ways in
// turn in the first steps. Both compute the same bits, so the choice only changes the time. When it
// does hide communication, measures how much: the time that the group's calls took, from the flight
// recorder, against the time that the layers waited for them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/train/config/parallel_config.h"
#include "trireme/train/profile/span_recording.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

// Times of one rank, or their sums over ranks and steps.
struct CommunicationTimes {
  double under_way = 0;  // seconds with a call of the group under way; negative: unknown
  double waiting = 0;    // seconds in which the computation waited for them
};

// The share that was hidden. Empty if a rank does not know its times, or nothing was communicated.
// A rank that waits longer than its calls take hides nothing.
std::optional<double> hidden_share(std::span<const CommunicationTimes> ranks);

// Seconds within `window` in which a call of group `name` with `size` members was under way, from
// its issue to its end. A background call's time in the queue counts. Negative when the recorder
// has lost calls or does not record such a group.
double seconds_under_way(const RankProfile& calls, const Span& window, const std::string& name,
                         int size);

// Thread safety: one thread, the one that runs the steps.
class HiddenCommunication {
 public:
  // Measures the group `name` of `size` ranks. With a null recorder nothing is known.
  HiddenCommunication(std::shared_ptr<const comm::Recorder> recorder, std::string name, int size);

  // Begins to measure. Discards an unfinished measurement.
  void begin();
  // window: when the layers ran. waiting: how long they have waited since begin(). Adds to times().
  void end(const Span& window, std::chrono::nanoseconds waiting);
  const CommunicationTimes& times() const { return times_; }

 private:
  std::shared_ptr<const comm::Recorder> recorder_;
  std::string name_;
  int size_;
  std::optional<CallRecording> calls_;
  CommunicationTimes times_;
};

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

}  // namespace trireme::train
