// Measures how much of tensor parallelism's communication is hidden behind computation. It compares
// the time that the group's calls took, from the flight recorder, with the time that the layers
// waited for them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/comm/recorder/recorder.h"
#include "trireme/train/profile/call_recording.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train::inline internal {

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

}  // namespace trireme::train::inline internal
