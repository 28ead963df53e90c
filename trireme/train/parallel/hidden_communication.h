// How much of tensor parallelism's communication went on behind the computation: the time that the
// group's calls were under way, by the flight recorder, against the time that the layers waited for
// them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/comm/recorder/recorder.h"
#include "trireme/train/profile/call_recording.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

// Of one rank, or summed over ranks and steps.
struct CommunicationTimes {
  double under_way = 0;  // seconds with a call of the group; negative: not known
  double waiting = 0;    // seconds in which the computation stood still for them
};

// The share that was hidden, of ranks that all know theirs; nothing when one does not, or nothing
// was communicated. A rank that waits longer than its calls take hides nothing.
std::optional<double> hidden_share(std::span<const CommunicationTimes> ranks);

// Seconds within `window` in which a call of the group `name` with `size` members was under way:
// from when it was issued, so that a background call's time in the queue counts, to its end.
// Negative when the recorder has forgotten calls, or records none of such a group.
double seconds_under_way(const RankProfile& calls, const Span& window, const std::string& name,
                         int size);

// Thread safety: one thread, which runs the steps.
class HiddenCommunication {
 public:
  // Of the group `name` of `size` ranks. A null recorder: nothing is known.
  HiddenCommunication(std::shared_ptr<const comm::Recorder> recorder, std::string name, int size);

  // Takes note of calls from now on; those of an unfinished measurement are forgotten.
  void begin();
  // window: when the layers ran. waiting: how long they waited since begin(). Adds to times().
  void end(const Span& window, std::chrono::nanoseconds waiting);
  const CommunicationTimes& times() const { return times_; }

 private:
  std::shared_ptr<const comm::Recorder> recorder_;
  std::string name_;
  int size_;
  std::optional<CallRecording> calls_;
  CommunicationTimes times_;
};

}  // namespace trireme::train
